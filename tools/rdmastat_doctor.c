#include "rdmastat.h"
int cmd_doctor(int argc, char **argv) { (void)argc; (void)argv; return 0; }
int cmd_loop(int argc, char **argv) { (void)argc; (void)argv; return 0; }
