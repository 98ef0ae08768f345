/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SILT_H
#define SILT_SILT_H

#include <silt/access.h>
#include <silt/backend.h>
#include <silt/bitmap.h>
#include <silt/error.h>
#include <silt/frontend.h>
#include <silt/iotlb.h>
#include <silt/log.h>
#include <silt/memory.h>
#include <silt/precopy.h>
#include <silt/range.h>
#include <silt/sync.h>
#include <silt/vhost_user.h>
#include <silt/virtq.h>

SILT_BEGIN_DECLS

/** silt_version() - the library's version, "MAJOR.MINOR.PATCH". */
SILT_API const char *silt_version(void);

SILT_END_DECLS

#endif
