/* RMSNorm by whole vectors. */
#ifndef ADVISOR_STREAM_H
#define ADVISOR_STREAM_H

#include "rms.h"
#include "squares.h"

#endif
