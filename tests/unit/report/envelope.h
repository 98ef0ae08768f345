/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ENVELOPE_H
#define ENVELOPE_H

#include <json-c/json.h>

/* Fail the test unless @top is a report of silt check by schema 1, consistent in itself. */
void envelope_check(json_object *top);

#endif
