// The reference of many memberships: one of each of GROUPS groups in each of
// COUNT network namespaces, by the bare calls of the kernel's rdma_cm.
//
//   many PATTERN COUNT GROUPS
//
// Prints the nanoseconds that it took. PATTERN is a path with %d for the
// namespace's number, from 0; the interface's address in namespace n is
// 10.77.(n/200).(n%200+1), group g is 239.77.0.(g+1).
#define _GNU_SOURCE
#define MULTICAST_JOIN 12 // enum rdma_cm_event_type: rdma_cma.h, which bites rdma_user_cm.h
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct sockaddr_in address(const char *text)
{
	struct sockaddr_in a = {.sin_family = AF_INET};

	if (inet_pton(AF_INET, text, &a.sin_addr) != 1)
		errx(2, "%s isn't an IPv4 address", text);
	return a;
}

static void command(int fd, unsigned cmd, void *payload, unsigned in, unsigned out)
{
	char buffer[sizeof(struct rdma_ucm_cmd_hdr) + 512];
	struct rdma_ucm_cmd_hdr hdr = {.cmd = cmd, .in = in, .out = out};

	memcpy(buffer, &hdr, sizeof(hdr));
	memcpy(buffer + sizeof(hdr), payload, in);
	if (write(fd, buffer, sizeof(hdr) + in) != (ssize_t)(sizeof(hdr) + in))
		err(1, "rdma_cm command %u", cmd);
}

static void many(const char *pattern, int count, int groups)
{
	long long start = now();
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	int joined = 0;

	if (fd < 0)
		err(1, "rdma_cm");
	for (int n = 0; n < count; n++) {
		char path[256], text[32];
		struct rdma_ucm_create_id_resp id;
		struct rdma_ucm_create_id create = {
			.uid = n + 1, .response = (uintptr_t)&id, .ps = RDMA_PS_UDP, .qp_type = IBV_QPT_UD};
		struct rdma_ucm_query_addr_resp bound;
		struct rdma_ucm_query query = {.response = (uintptr_t)&bound, .option = RDMA_USER_CM_QUERY_ADDR};
		struct rdma_ucm_bind bind = {.addr_size = sizeof(struct sockaddr_in)};
		struct sockaddr_in own;
		int ns;

		snprintf(path, sizeof(path), pattern, n);
		ns = open(path, O_RDONLY | O_CLOEXEC);
		if (ns < 0 || setns(ns, CLONE_NEWNET))
			err(1, "%s", path);
		command(fd, RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof(create), sizeof(id));
		snprintf(text, sizeof(text), "10.77.%d.%d", n / 200, n % 200 + 1);
		own = address(text);
		memcpy(&bind.addr, &own, sizeof(own));
		bind.id = query.id = id.id;
		command(fd, RDMA_USER_CM_CMD_BIND, &bind, sizeof(bind), 0);
		command(fd, RDMA_USER_CM_CMD_QUERY, &query, sizeof(query), sizeof(bound));
		for (int g = 0; g < groups; g++) {
			struct rdma_ucm_create_id_resp handle;
			struct rdma_ucm_join_mcast join = {
				.response = (uintptr_t)&handle, .uid = 1000 + n * groups + g, .id = id.id,
				.addr_size = sizeof(struct sockaddr_in)};
			struct sockaddr_in mc;

			snprintf(text, sizeof(text), "239.77.0.%d", g + 1);
			mc = address(text);
			memcpy(&join.addr, &mc, sizeof(mc));
			command(fd, RDMA_USER_CM_CMD_JOIN_MCAST, &join, sizeof(join), sizeof(handle));
		}
		close(ns);
	}
	while (joined < count * groups) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		struct rdma_ucm_event_resp event;
		struct rdma_ucm_get_event get = {.response = (uintptr_t)&event};

		if (poll(&p, 1, 30000) != 1)
			errx(1, "no event after 30 s: %d of %d joined", joined, count * groups);
		command(fd, RDMA_USER_CM_CMD_GET_EVENT, &get, sizeof(get), sizeof(event));
		if (event.event != MULTICAST_JOIN)
			errx(1, "event %u, status %d", event.event, (int)event.status);
		joined++;
	}
	printf("%lld\n", now() - start);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		errx(2, "usage: many PATTERN COUNT GROUPS");
	many(argv[1], atoi(argv[2]), atoi(argv[3]));
	return 0;
}
