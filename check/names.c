/* SPDX-License-Identifier: BSD-3-Clause */
#include "check/check.h"

const char *check_class_name(enum check_class class)
{
	static const char *const names[CHECK_CLASSES] = {
		[CHECK_DATA] = "data",
		[CHECK_COMPLETION] = "completion",
		[CHECK_BOOKKEEPING] = "bookkeeping",
	};

	return names[class];
}

const char *check_verdict_name(enum check_verdict verdict)
{
	static const char *const names[CHECK_WROTE_OUTSIDE + 1] = {
		[CHECK_NO_VERDICT] = "none",
		[CHECK_CORRECT] = "correct",
		[CHECK_IGNORED] = "ignored",
		[CHECK_REFUSED] = "refused",
		[CHECK_HUNG] = "hung",
		[CHECK_CRASHED] = "crashed",
		[CHECK_WROTE_OUTSIDE] = "wrote outside",
	};

	return names[verdict];
}

const char *check_page_state_name(enum check_page_state state)
{
	static const char *const names[CHECK_PAGE_STATES] = {
		[CHECK_LOGGED] = "logged",	 [CHECK_MISSED] = "missed",
		[CHECK_STALE] = "stale",	 [CHECK_IGNORED_MISS] = "ignored",
		[CHECK_AMBIGUOUS] = "ambiguous", [CHECK_EXTRA] = "extra",
	};

	return names[state];
}

const char *check_result_name(enum check_result result)
{
	static const char *const names[CHECK_ERROR + 1] = {
		[CHECK_PASS] = "pass",
		[CHECK_FAIL] = "fail",
		[CHECK_SKIP] = "skip",
		[CHECK_ERROR] = "error",
	};

	return names[result];
}
