/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VISIBILITY_H
#define SILT_VISIBILITY_H

#if !defined(__LP64__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || \
	!(defined(__x86_64__) || defined(__aarch64__))
#error "silt runs on 64-bit little-endian x86-64 and arm64 only"
#endif

#ifdef __cplusplus
#define SILT_BEGIN_DECLS extern "C" {
#define SILT_END_DECLS	 }
#else
#define SILT_BEGIN_DECLS
#define SILT_END_DECLS
#endif

#define SILT_API __attribute__((visibility("default")))

#endif
