/*
 * A UD queue pair on libibverbs alone, no rdma_cm: what an application in a pod
 * is, that has its uverbs device and nothing else. It attaches to a group,
 * counts what arrives, and can send.
 *
 *   receiver DEVICE GROUP SECONDS [PORT]
 *     attaches to GROUP (an IPv4 or IPv6 address, which is its MGID on RoCE v2),
 *     prints "attached", then "received N" whenever the total has changed, and
 *     at the end, after SECONDS or on SIGTERM (0: only then), "total N".
 *
 *   receiver -i DEVICE [PORT]
 *     prints "ready" and does what standard input says, one answer a line:
 *       attach MGID MLID                        "ok"
 *       detach MGID MLID                        "ok"
 *       received                                "received N", the total so far
 *       send MGID MLID GIDINDEX QKEY COUNT      "ok", once all have left
 *     or "error ERRNO TEXT". It ends with standard input.
 *
 * Build: cc -O2 -Wall -o receiver receiver.c -libverbs
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	DEPTH = 256,
	GRH_LEN = 40,
	BUFFER_LEN = GRH_LEN + 4096,
	SEND_TRIES = 10000, /* milliseconds for a send to complete */
	MULTICAST_QPN = 0xFFFFFF,
	DEFAULT_QKEY = 0x01234567,
};

struct endpoint {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *recv_cq, *send_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buffers; /* DEPTH to receive into, one to send from */
	uint8_t port;
	unsigned long received;
};

static volatile sig_atomic_t stopped;

static void stop(int signum)
{
	(void)signum;
	stopped = 1;
}

static void die(const char *what)
{
	fprintf(stderr, "receiver: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void post_receive(struct endpoint *e, uint64_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(e->buffers + slot * BUFFER_LEN),
		.length = BUFFER_LEN,
		.lkey = e->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	if ((errno = ibv_post_recv(e->qp, &wr, &bad)))
		die("post receive");
}

static struct ibv_context *open_device(const char *name)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *context = NULL;

	if (!list)
		die("list RDMA devices");
	errno = ENODEV;
	for (int i = 0; i < n && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		die(name);
	ibv_free_device_list(list);
	return context;
}

static void open_endpoint(struct endpoint *e, const char *device, int port)
{
	memset(e, 0, sizeof *e);
	e->port = port;
	e->context = open_device(device);
	if (!(e->pd = ibv_alloc_pd(e->context)))
		die("allocate protection domain");
	if (!(e->recv_cq = ibv_create_cq(e->context, DEPTH, NULL, NULL, 0)) ||
	    !(e->send_cq = ibv_create_cq(e->context, 1, NULL, NULL, 0)))
		die("create completion queue");

	struct ibv_qp_init_attr init = {
		.send_cq = e->send_cq,
		.recv_cq = e->recv_cq,
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	if (!(e->qp = ibv_create_qp(e->pd, &init)))
		die("create queue pair");
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = port, .qkey = DEFAULT_QKEY };
	if ((errno = ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)))
		die("queue pair to INIT");

	size_t size = (size_t)(DEPTH + 1) * BUFFER_LEN;
	if (!(e->buffers = calloc(1, size)))
		die("allocate buffers");
	if (!(e->mr = ibv_reg_mr(e->pd, e->buffers, size, IBV_ACCESS_LOCAL_WRITE)))
		die("register memory (RLIMIT_MEMLOCK?)");
	for (int i = 0; i < DEPTH; i++)
		post_receive(e, i);

	attr.qp_state = IBV_QPS_RTR;
	if ((errno = ibv_modify_qp(e->qp, &attr, IBV_QP_STATE)))
		die("queue pair to RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0;
	if ((errno = ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN)))
		die("queue pair to RTS");
}

static void close_endpoint(struct endpoint *e)
{
	ibv_destroy_qp(e->qp);
	ibv_dereg_mr(e->mr);
	ibv_destroy_cq(e->recv_cq);
	ibv_destroy_cq(e->send_cq);
	ibv_dealloc_pd(e->pd);
	ibv_close_device(e->context);
	free(e->buffers);
}

/* Counts what has arrived. */
static void drain(struct endpoint *e)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(e->recv_cq, 1, &wc)) > 0) {
		if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "receiver: receive: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		e->received++;
		post_receive(e, wc.wr_id);
	}
	if (n < 0)
		die("poll completion queue");
}

static int send_packets(struct endpoint *e, union ibv_gid mgid, uint16_t mlid, int gid_index, uint32_t qkey, int count)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.grh = { .dgid = mgid, .sgid_index = gid_index, .hop_limit = 64 },
		.dlid = mlid,
		.port_num = e->port,
	};
	struct ibv_ah *ah = ibv_create_ah(e->pd, &attr);
	int err = 0;

	if (!ah)
		return errno;
	for (int i = 0; i < count && !err; i++) {
		struct ibv_sge sge = {
			.addr = (uintptr_t)(e->buffers + (size_t)DEPTH * BUFFER_LEN),
			.length = 64,
			.lkey = e->mr->lkey,
		};
		struct ibv_send_wr wr = {
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
			.send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(e->qp->qp_num),
			.wr.ud = { .ah = ah, .remote_qpn = MULTICAST_QPN, .remote_qkey = qkey },
		}, *bad;
		struct ibv_wc wc;
		int n = 0;
		int tries = 0;

		if ((err = ibv_post_send(e->qp, &wr, &bad)))
			break;
		while ((n = ibv_poll_cq(e->send_cq, 1, &wc)) == 0 && tries++ < SEND_TRIES)
			usleep(1000);
		if (n == 0)
			err = ETIMEDOUT;
		else if (n < 0 || wc.status != IBV_WC_SUCCESS)
			err = EIO;
	}
	ibv_destroy_ah(ah);
	return err;
}

/* An IPv4 address stands for its IPv4-mapped MGID. */
static int parse_mgid(const char *text, union ibv_gid *mgid)
{
	memset(mgid, 0, sizeof *mgid);
	if (inet_pton(AF_INET6, text, mgid->raw) == 1)
		return 0;
	mgid->raw[10] = mgid->raw[11] = 0xff;
	return inet_pton(AF_INET, text, mgid->raw + 12) == 1 ? 0 : EINVAL;
}

static void answer(int err)
{
	if (err)
		printf("error %d %s\n", err, strerror(err));
	else
		puts("ok");
}

static void interactive(struct endpoint *e)
{
	char line[256], text[INET6_ADDRSTRLEN];
	uint16_t mlid;
	int gid_index, count;
	uint32_t qkey;
	union ibv_gid mgid;
	int err;

	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "attach %45s %" SCNi16, text, &mlid) == 2) {
			err = parse_mgid(text, &mgid);
			answer(err ? err : ibv_attach_mcast(e->qp, &mgid, mlid));
		} else if (sscanf(line, "detach %45s %" SCNi16, text, &mlid) == 2) {
			err = parse_mgid(text, &mgid);
			answer(err ? err : ibv_detach_mcast(e->qp, &mgid, mlid));
		} else if (sscanf(line, "send %45s %" SCNi16 " %d %" SCNi32 " %d", text, &mlid, &gid_index, &qkey, &count) == 5) {
			err = parse_mgid(text, &mgid);
			answer(err ? err : send_packets(e, mgid, mlid, gid_index, qkey, count));
		} else if (!strcmp(line, "received\n")) {
			drain(e);
			printf("received %lu\n", e->received);
		} else {
			answer(EINVAL);
		}
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void receive(struct endpoint *e, const char *group, double seconds)
{
	union ibv_gid mgid;
	unsigned long told = 0;

	if ((errno = parse_mgid(group, &mgid)))
		die(group);
	if ((errno = ibv_attach_mcast(e->qp, &mgid, 0)))
		die("attach");
	puts("attached");
	double end = now() + seconds;
	while (!stopped && (seconds == 0 || now() < end)) {
		drain(e);
		if (e->received != told)
			printf("received %lu\n", told = e->received);
		usleep(10000);
	}
	drain(e);
	if ((errno = ibv_detach_mcast(e->qp, &mgid, 0)))
		die("detach");
	printf("total %lu\n", e->received);
}

int main(int argc, char **argv)
{
	struct endpoint e;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc >= 3 && !strcmp(argv[1], "-i")) {
		open_endpoint(&e, argv[2], argc > 3 ? atoi(argv[3]) : 1);
		interactive(&e);
	} else if (argc >= 4) {
		struct sigaction sa = { .sa_handler = stop };

		sigaction(SIGTERM, &sa, NULL);
		sigaction(SIGINT, &sa, NULL);
		open_endpoint(&e, argv[1], argc > 4 ? atoi(argv[4]) : 1);
		receive(&e, argv[2], atof(argv[3]));
	} else {
		fputs("usage: receiver DEVICE GROUP SECONDS [PORT]\n       receiver -i DEVICE [PORT]\n", stderr);
		return 2;
	}
	close_endpoint(&e);
	return 0;
}
