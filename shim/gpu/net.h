/*
 * net.h - device memory between hosts: its end (gpu.h has its calls).
 */
#ifndef RDMASHIM_GPU_NET_H
#define RDMASHIM_GPU_NET_H

#include "gpu/gpu.h"

/* At exit(): waits for who reads through a window (1 s at most), and lets no other begin. */
void gpu_windows_end(void);

#endif
