/*
 * defer.h - the lazy GPU path's way in: it says to gpu/deferred.h that it is there.
 */
#ifndef RDMASHIM_DEFERRED_H
#define RDMASHIM_DEFERRED_H

/* Once, before anything of a GPU is seen. NULL where the GPU path is left out (make
 * DEFERRED=no). */
void deferred_begin(void) __attribute__((weak, visibility("hidden")));

#endif
