# SPDX-License-Identifier: BSD-3-Clause
# What Perl's own reader of TAP makes of a file, as JSON; it has to be without mistakes.
use strict;
use warnings;
use JSON::PP;
use TAP::Parser;

open my $file, '<:encoding(UTF-8)', $ARGV[0] or die "$ARGV[0]: $!";
local $/;
my $parser = TAP::Parser->new({tap => <$file>});
my (@tests, $bail);
while (my $result = $parser->next) {
	if ($result->is_test) {
		push @tests, {number => $result->number, name => $result->description,
			ok => $result->is_actual_ok ? \1 : \0, directive => $result->directive,
			explanation => $result->explanation};
	} elsif ($result->is_yaml) {
		$tests[-1]{diagnosis} = $result->data;
	} elsif ($result->is_bailout) {
		$bail = $result->explanation;
	} elsif ($result->is_unknown && $result->raw ne '') {
		die 'no TAP: ' . $result->raw;
	}
}
die join("\n", $parser->parse_errors) if $parser->parse_errors && !defined $bail;
print JSON::PP->new->utf8->encode({tests => \@tests, bail => $bail, version => $parser->version,
	failed => [$parser->failed]});
