/*
 * rdmastat_devices.c - the doctor's checks of RDMA devices and GPUs, as /sys, /proc and /dev
 * show them; no driver is called.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor/rdmastat_doctor.h"

#define GIDS 256

/* ---- RDMA ---- */

static int count_gids(const struct doctor *d, const char *dev, const char *port)
{
	char gid[64];
	int i, n = 0;

	for (i = 0; i < GIDS && fact(d, gid, sizeof(gid),
				     "/sys/class/infiniband/%s/ports/%s/gids/%d", dev, port, i);
	     i++)
		n += strcmp(gid, "0000:0000:0000:0000:0000:0000:0000:0000") != 0;
	return n;
}

static void net_mtu(const struct doctor *d, const char *dev, const char *port, char *buf,
		    size_t len)
{
	char dir[256], **net, mtu[24], name[24];

	snprintf(buf, len, "unknown");
	snprintf(dir, sizeof(dir), "/sys/class/infiniband/%s/device/net", dev);
	net = names_in(d, dir);
	if (net && net[0] && fact(d, mtu, sizeof(mtu), "%s/%s/mtu", dir, net[0]))
		snprintf(buf, len, "%s (%s)", mtu, net[0]);
	else if (fact(d, name, sizeof(name), "/sys/class/infiniband/%s/ports/%s/gid_attrs/ndevs/0",
		      dev, port) &&
		 /* a device in software */
		 fact(d, mtu, sizeof(mtu), "/sys/class/net/%s/mtu", name))
		snprintf(buf, len, "%s (%s)", mtu, name);
	names_free(net);
}

static void check_port(struct doctor *d, const char *dev, const char *port)
{
	char state[64], rate[64], layer[64], mtu[64], name[24], mend[128];
	int gids = count_gids(d, dev, port);

	snprintf(name, sizeof(name), "%.12s/%.4s", dev, port);
	fact(d, state, sizeof(state), "/sys/class/infiniband/%s/ports/%s/state", dev, port);
	fact(d, rate, sizeof(rate), "/sys/class/infiniband/%s/ports/%s/rate", dev, port);
	fact(d, layer, sizeof(layer), "/sys/class/infiniband/%s/ports/%s/link_layer", dev, port);
	net_mtu(d, dev, port, mtu, sizeof(mtu));
	if (!strstr(state, "ACTIVE")) {
		snprintf(mend, sizeof(mend), "%s",
			 strcmp(layer, "InfiniBand")
				 ? "ip link set DEV up, where rdma link names DEV; look at the "
				   "cable"
				 : "start a subnet manager (opensm); look at the cable");
		verdict(d, V_FAIL, name, mend, "port is %s, %s", state, layer);
	} else if (!gids) {
		verdict(d, V_FAIL, name,
			"give its network device an address: ip addr add ADDRESS dev DEV",
			"port is active, but has no GID");
	} else {
		verdict(d, V_OK, name, "", "port is active, %s, %s, %d GIDs, network MTU %s", layer,
			rate, gids, mtu);
	}
}

static void check_node(struct doctor *d, const char *dir, const char *prefix, const char *what)
{
	char **names = names_in(d, dir), path[PATH_MAX];
	int seen = 0, usable = 0;
	size_t i;

	for (i = 0; names && names[i]; i++) {
		if (strncmp(names[i], prefix, strlen(prefix)))
			continue;
		snprintf(path, sizeof(path), "%s%s/%s", d->root, dir, names[i]);
		seen++;
		usable += !access(path, R_OK | W_OK);
	}
	names_free(names);
	snprintf(path, sizeof(path), "%s/%s%s", dir, prefix, strcmp(prefix, "uverbs") ? "" : "*");
	if (!seen)
		verdict(d, V_FAIL, what,
			"modprobe ib_uverbs rdma_ucm; containers: --device /dev/infiniband",
			"%s is not there", path);
	else if (!usable)
		verdict(d, V_FAIL, what, "give this user access: chmod 666, or a udev rule",
			"%s may not be opened", path);
	else
		verdict(d, V_OK, what, "", "%s may be opened (%d of %d)", path, usable, seen);
}

static void check_rdma(struct doctor *d)
{
	char **dev = names_in(d, "/sys/class/infiniband"), **port, dir[256];
	size_t i, k;

	for (i = 0; dev && dev[i]; i++) {
		snprintf(dir, sizeof(dir), "/sys/class/infiniband/%s/ports", dev[i]);
		port = names_in(d, dir);
		for (k = 0; port && port[k]; k++)
			check_port(d, dev[i], port[k]);
		names_free(port);
	}
	names_free(dev);
	if (!d->has_rdma) {
		verdict(d, V_NONE, "rdma devices", "",
			"none: connections to other hosts stay on TCP");
		return;
	}
	check_node(d, "/dev/infiniband", "uverbs", "verbs device");
	check_node(d, "/dev/infiniband", "rdma_cm", "rdma_cm device");
}

/* ---- GPUs ---- */

static void check_driver(struct doctor *d)
{
	char v[256], version[64], *s;
	int major = 0;
	bool open;

	fact(d, v, sizeof(v), "/proc/driver/nvidia/version");
	open = strstr(v, "Open Kernel Module") != NULL;
	for (s = v; *s; s++)		/* the first word that looks like 535.104 */
		if (s[0] >= '0' && s[0] <= '9' && (s == v || s[-1] == ' ') &&
		    sscanf(s, "%d.%*d", &major) == 1 && strchr(s, '.'))
			break;
	snprintf(version, sizeof(version), "%.*s", (int)strcspn(s, " "), s);
	if (major && major < 515)
		verdict(d, V_WARN, "gpu driver", "install driver 515 or later",
			"NVIDIA %s: too old for dma-buf", version);
	else
		verdict(d, V_OK, "gpu driver", "", "NVIDIA %s, %s kernel module", version,
			open ? "open" : "closed");
	if (open && major >= 515)
		verdict(d, V_OK, "dma-buf", "",
			"the open driver exports GPU memory as dma-buf; whether the NIC takes it, "
			"only a registration tells");
	else
		verdict(d, V_NONE, "dma-buf", "", "needs the open kernel module, 515 or later");
}

static void check_peermem(struct doctor *d)
{
	char v[64];

	if (fact(d, v, sizeof(v), "/sys/module/nvidia_peermem/version"))
		verdict(d, V_OK, "nvidia_peermem", "", "loaded, version %s", v);
	else if (fact(d, v, sizeof(v), "/sys/kernel/mm/memory_peers/nv_mem/version") ||
		 fact(d, v, sizeof(v), "/sys/kernel/mm/memory_peers/nv_mem_nc/version"))
		verdict(d, V_OK, "nvidia_peermem", "", "nv_mem is registered, version %s", v);
	else if (d->has_rdma)
		verdict(d, V_WARN, "nvidia_peermem", "modprobe nvidia_peermem",
			"not loaded: without dma-buf the NIC cannot reach GPU memory");
	else
		verdict(d, V_NONE, "nvidia_peermem", "", "not loaded; only RDMA needs it");
}

static bool exists(const struct doctor *d, const char *path)
{
	char p[PATH_MAX];

	snprintf(p, sizeof(p), "%s%s", d->root, path);
	return !access(p, F_OK);
}

static void check_gdrdrv(struct doctor *d)
{
	if (exists(d, "/dev/gdrdrv"))
		verdict(d, V_OK, "gdrcopy", "", "/dev/gdrdrv is there");
	else
		verdict(d, V_NONE, "gdrcopy", "",
			"/dev/gdrdrv is not there: small copies to the GPU go by the driver");
}

/* Size of BAR1 in bytes, out of the second line of `resource`. */
static uint64_t bar1_size(const struct doctor *d, const char *pci)
{
	unsigned long long from = 0, to = 0;
	char path[PATH_MAX], line[128];
	FILE *f;
	int i;

	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/resource", d->root, pci);
	f = fopen(path, "re");
	for (i = 0; f && i < 2 && fgets(line, sizeof(line), f); i++)
		;
	if (f && i == 2)
		sscanf(line, "%llx %llx", &from, &to);
	if (f)
		fclose(f);
	return to > from ? to - from + 1 : 0;
}

static void check_gpu(struct doctor *d, const char *pci)
{
	char width[16], max[16], speed[64], full[64], h[16], name[24];
	uint64_t bar = bar1_size(d, pci);

	snprintf(name, sizeof(name), "gpu %.18s", pci);
	fact(d, width, sizeof(width), "/sys/bus/pci/devices/%s/current_link_width", pci);
	fact(d, max, sizeof(max), "/sys/bus/pci/devices/%s/max_link_width", pci);
	fact(d, speed, sizeof(speed), "/sys/bus/pci/devices/%s/current_link_speed", pci);
	fact(d, full, sizeof(full), "/sys/bus/pci/devices/%s/max_link_speed", pci);
	human(bar, h, sizeof(h));
	if (width[0] && max[0] && atoi(width) < atoi(max))
		verdict(d, V_WARN, name, "reseat the card; look at the slot's width",
			"runs at x%s, could x%s (%s)", width, max, speed);
	else if (bar && bar < 1u << 30)
		verdict(d, V_WARN, name, "enable resizable BAR / Above 4G decoding in the firmware",
			"BAR1 is only %s: little GPU memory can be registered at a time", h);
	else
		verdict(d, V_OK, name, "", "x%s at %s of %s, BAR1 %s", width[0] ? width : "?",
			speed[0] ? speed : "?", full[0] ? full : "?", h);
}

/* ---- how they are wired ---- */

/* The device's place in the tree of buses, "" if not known. */
static void pci_path(const struct doctor *d, const char *link, char *buf, size_t len)
{
	char path[PATH_MAX], real[PATH_MAX];

	snprintf(path, sizeof(path), "%s%s", d->root, link);
	buf[0] = '\0';
	if (realpath(path, real) && strlen(real) < len)
		strcpy(buf, real);
}

/* As nvidia-smi topo calls it: how many bridges two devices share. */
static const char *distance(const char *a, const char *b)
{
	size_t i, slash = 0, bridges = 0;
	const char *s;

	for (i = 0; a[i] && a[i] == b[i]; i++)
		if (a[i] == '/')
			slash = i;
	s = strstr(a, "/pci");
	if (!s || slash < (size_t)(s - a) + 4)
		return "SYS";
	for (s = s + 1; s < a + slash; s++)
		if (*s == '/')
			bridges++;
	return bridges == 0 ? "PHB" : bridges == 1 ? "PXB" : "PIX";
}

static void check_distance(struct doctor *d, const char *pci)
{
	char **dev = names_in(d, "/sys/class/infiniband"), link[256], gpu[PATH_MAX], nic[PATH_MAX],
	     name[24];
	size_t i;

	snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s", pci);
	pci_path(d, link, gpu, sizeof(gpu));
	for (i = 0; dev && dev[i]; i++) {
		const char *far;

		snprintf(link, sizeof(link), "/sys/class/infiniband/%s/device", dev[i]);
		pci_path(d, link, nic, sizeof(nic));
		if (!nic[0] || !gpu[0])
			continue;
		far = distance(gpu, nic);
		snprintf(name, sizeof(name), "%.22s", dev[i]);
		if (!strcmp(far, "PHB") || !strcmp(far, "SYS"))
			verdict(d, V_WARN, name, "use a NIC below the same PCIe switch as the GPU",
				"GPU %s to %s: %s (through the %s)", pci, dev[i], far,
				far[0] == 'P' ? "host bridge" : "link between CPUs");
		else
			verdict(d, V_OK, name, "", "GPU %s to %s: %s (one PCIe switch)", pci,
				dev[i], far);
	}
	names_free(dev);
}

/* ACS redirection on a bridge sends transfers between devices up to the root. Extended
 * capability 0x0d, control at +6. */
static int acs_of(const struct doctor *d, const char *pci)
{
	uint8_t c[4096];
	char path[PATH_MAX];
	unsigned at = 0x100, hops;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/config", d->root, pci);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, c, sizeof(c));
	close(fd);
	if (n < 0x104)
		return -1;		/* the kernel shows the rest to root only */
	for (hops = 0; at >= 0x100 && at + 8 <= (unsigned)n && hops < 64; hops++) {
		unsigned id = c[at] | c[at + 1] << 8, next = (c[at + 2] | c[at + 3] << 8) >> 4;

		if (id == 0x0d)
			return (c[at + 6] | c[at + 7] << 8) & 0x0c ? 1 : 0;
		at = next;
	}
	return 0;
}

static void check_acs(struct doctor *d)
{
	char **dev = names_in(d, "/sys/bus/pci/devices"), class[32], first[32] = "";
	int on = 0, unknown = 0;
	size_t i;

	for (i = 0; dev && dev[i]; i++) {
		int acs;

		if (!fact(d, class, sizeof(class), "/sys/bus/pci/devices/%s/class", dev[i]) ||
		    strncmp(class, "0x0604", 6))
			continue;
		acs = acs_of(d, dev[i]);
		unknown += acs < 0;
		if (acs > 0 && !on++)
			snprintf(first, sizeof(first), "%.31s", dev[i]);
	}
	names_free(dev);
	if (on)
		verdict(d, V_WARN, "acs",
			"setpci -s BRIDGE ECAP_ACS+6.w=0 for each, or switch ACS off in the "
			"firmware",
			"on at %d bridges (%s ...): transfers between GPU and NIC go up to the "
			"root",
			on, first);
	else if (unknown)
		verdict(d, V_NONE, "acs", "run the doctor as root", "not readable for this user");
	else
		verdict(d, V_OK, "acs", "", "off on all bridges");
}

static void check_iommu(struct doctor *d)
{
	char **group = names_in(d, "/sys/kernel/iommu_groups"), type[32];
	int translated = 0, n = 0;
	size_t i;

	for (i = 0; group && group[i]; i++, n++)
		if (fact(d, type, sizeof(type), "/sys/kernel/iommu_groups/%s/type", group[i]) &&
		    strncmp(type, "identity", 8))
			translated++;
	names_free(group);
	if (translated)
		verdict(d, V_WARN, "iommu", "boot with iommu=pt",
			"%d of %d groups are translated: transfers between devices are slower or "
			"refused",
			translated, n);
	else
		verdict(d, V_OK, "iommu", "", n ? "pass-through" : "off");
}

static bool is_gpu(const struct doctor *d, const char *pci)
{
	char vendor[32], class[32];

	return fact(d, vendor, sizeof(vendor), "/sys/bus/pci/devices/%s/vendor", pci) &&
	       !strcmp(vendor, "0x10de") &&
	       fact(d, class, sizeof(class), "/sys/bus/pci/devices/%s/class", pci) &&
	       (!strncmp(class, "0x0302", 6) || !strncmp(class, "0x0300", 6));
}

void check_devices(struct doctor *d)
{
	char **dev;
	size_t i;

	check_rdma(d);
	if (!d->has_gpu) {
		verdict(d, V_NONE, "gpus", "", "none");
		return;
	}
	check_driver(d);
	check_peermem(d);
	check_gdrdrv(d);
	dev = names_in(d, "/sys/bus/pci/devices");
	for (i = 0; dev && dev[i]; i++)
		if (is_gpu(d, dev[i])) {
			check_gpu(d, dev[i]);
			check_distance(d, dev[i]);
		}
	names_free(dev);
	if (d->has_rdma) {
		check_acs(d);
		check_iommu(d);
	}
}
