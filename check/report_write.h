/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_REPORT_WRITE_H
#define CHECK_REPORT_WRITE_H

#include <json-c/json.h>
#include <stdint.h>
#include <stdio.h>

#include "check/check.h"

/*
 * The formats, from the document that report_document.c gathered. Its texts are clean, see
 * check_text_clean(); what the format itself cannot hold is the writer's to escape. Return: 0 or
 * -ENOMEM; what could not be written shows in @out.
 */
int check_write_json(json_object *top, FILE *out);
int check_write_tap(json_object *top, FILE *out);
int check_write_junit(json_object *top, FILE *out);
int check_write_html(json_object *top, FILE *out);

/* Fields of an object that has them; "" and 0 for those that it lacks. */
const char *check_field_text(json_object *object, const char *key);
uint64_t check_field_count(json_object *object, const char *key);
double check_field_number(json_object *object, const char *key);
bool check_field_bool(json_object *object, const char *key);

/* Elements of an array that it has, or 0; and one of them. */
size_t check_field_length(json_object *object, const char *key);
json_object *check_field_at(json_object *object, const char *key, size_t i);

/* A scenario's result; that of the whole if @object is the document. */
enum check_result check_field_result(json_object *object);

#endif
