// The reference of one join, event and leave: N times by librdmacm, on one id.
//
//   loop ADDRESS GROUP N
//
// Prints the nanoseconds that it took.
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <rdma/rdma_cma.h>

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

static void loop(const char *addr, const char *group, int n)
{
	struct sockaddr_in own = address(addr), mc = address(group);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	long long start;

	if (!channel)
		err(1, "rdma_create_event_channel");
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_UDP))
		err(1, "rdma_create_id");
	if (rdma_bind_addr(id, (struct sockaddr *)&own))
		err(1, "rdma_bind_addr %s", addr);
	start = now();
	for (int i = 0; i < n; i++) {
		if (rdma_join_multicast(id, (struct sockaddr *)&mc, NULL))
			err(1, "rdma_join_multicast %s", group);
		if (rdma_get_cm_event(channel, &event))
			err(1, "rdma_get_cm_event");
		if (event->event != RDMA_CM_EVENT_MULTICAST_JOIN)
			errx(1, "event %d, status %d", event->event, event->status);
		if (rdma_ack_cm_event(event))
			err(1, "rdma_ack_cm_event");
		if (rdma_leave_multicast(id, (struct sockaddr *)&mc))
			err(1, "rdma_leave_multicast %s", group);
	}
	printf("%lld\n", now() - start);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		errx(2, "usage: loop ADDRESS GROUP N");
	loop(argv[1], argv[2], atoi(argv[3]));
	return 0;
}
