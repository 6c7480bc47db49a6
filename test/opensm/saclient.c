/*
 * Asks the subnet administrator for MCMemberRecords as a script says, and tells
 * its answers: run under ibsim's libumad2sim.so it is a port of the simulated
 * subnet, the node that SIM_HOST names.
 *
 * First it prints "port" with its GID and the LIDs of itself and the subnet
 * manager. Then each line of standard input is a request:
 *
 *   METHOD MASK [NAME=VALUE...]
 *
 * METHOD is set, delete, get or table, MASK the component mask, NAME a field of
 * the record (below), or smkey. Fields not named are zero. The answer is
 *
 *   STATUS COUNT
 *
 * the MAD's status and how many records follow, each on a line with all fields;
 * or "timeout". It ends with standard input. "error TEXT" and status 1: it can't
 * go on, or a line is no request.
 *
 * Build: cc -O2 -Wall -Wextra -o saclient saclient.c -libumad
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/umad.h>
#include <infiniband/umad_sa.h>
#include <infiniband/umad_sa_mcm.h>
#include <infiniband/umad_types.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SA_QP = 1,
	QKEY_GSI = 0x80010000,
	HEADER = 56, /* of an SA MAD, before its records */
	TIMEOUT_MS = 5000,
	MAX_ANSWER = 1 << 16,
	MAX_LINE = 1024,
};

/* A record in host order, and the SM_Key of its request. */
struct record {
	struct in6_addr mgid, portgid;
	unsigned long qkey, mlid, mtusel, mtu, tclass, pkey, ratesel, rate;
	unsigned long lifesel, life, sl, flow, hop, scope, state, proxy, smkey;
};

struct agent {
	int port, id;
	unsigned sm_lid;
	uint64_t tid;
};

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("error ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	exit(1);
}

static unsigned long *number_field(struct record *r, const char *name)
{
	struct {
		const char *name;
		unsigned long *value;
	} fields[] = {
		{"qkey", &r->qkey},   {"mlid", &r->mlid},	{"mtusel", &r->mtusel},
		{"mtu", &r->mtu},     {"tclass", &r->tclass},	{"pkey", &r->pkey},
		{"rate", &r->rate},   {"ratesel", &r->ratesel}, {"lifesel", &r->lifesel},
		{"life", &r->life},   {"sl", &r->sl},		{"flow", &r->flow},
		{"hop", &r->hop},     {"scope", &r->scope},	{"state", &r->state},
		{"proxy", &r->proxy}, {"smkey", &r->smkey},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!strcmp(fields[i].name, name))
			return fields[i].value;
	return NULL;
}

static unsigned long long number(const char *text)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text || *end)
		die("%s is no number", text);
	return value;
}

static void set_field(struct record *r, char *field)
{
	char *value = strchr(field, '=');
	unsigned long *where;

	if (!value)
		die("%s is not NAME=VALUE", field);
	*value++ = 0;
	if (!strcmp(field, "mgid") || !strcmp(field, "portgid")) {
		if (inet_pton(AF_INET6, value, field[0] == 'm' ? &r->mgid : &r->portgid) != 1)
			die("%s is no GID", value);
		return;
	}
	where = number_field(r, field);
	if (!where)
		die("no field is named %s", field);
	*where = number(value);
}

static void encode(const struct record *r, struct umad_sa_mcmember_record *w)
{
	memset(w, 0, sizeof(*w));
	memcpy(w->mgid, &r->mgid, sizeof(w->mgid));
	memcpy(w->portgid, &r->portgid, sizeof(w->portgid));
	w->qkey = htonl(r->qkey);
	w->mlid = htons(r->mlid);
	w->mtu = umad_sa_set_rate_mtu_or_life(r->mtusel, r->mtu);
	w->tclass = r->tclass;
	w->pkey = htons(r->pkey);
	w->rate = umad_sa_set_rate_mtu_or_life(r->ratesel, r->rate);
	w->pkt_life = umad_sa_set_rate_mtu_or_life(r->lifesel, r->life);
	w->sl_flow_hop = umad_sa_mcm_set_sl_flow_hop(r->sl, r->flow, r->hop);
	w->scope_state = umad_sa_mcm_set_scope_state(r->scope, r->state);
	w->proxy_join = r->proxy;
}

static void print_record(const struct umad_sa_mcmember_record *w)
{
	char mgid[INET6_ADDRSTRLEN], portgid[INET6_ADDRSTRLEN];
	uint32_t flow;
	uint8_t sl, hop, scope, state;

	umad_sa_mcm_get_sl_flow_hop(w->sl_flow_hop, &sl, &flow, &hop);
	umad_sa_mcm_get_scope_state(w->scope_state, &scope, &state);
	printf("mgid=%s portgid=%s qkey=%#x mlid=%#x mtusel=%d mtu=%d tclass=%d pkey=%#x ratesel=%d rate=%d "
	       "lifesel=%d life=%d sl=%d flow=%#x hop=%d scope=%d state=%d proxy=%#x\n",
	       inet_ntop(AF_INET6, w->mgid, mgid, sizeof(mgid)),
	       inet_ntop(AF_INET6, w->portgid, portgid, sizeof(portgid)), ntohl(w->qkey),
	       ntohs(w->mlid), w->mtu >> 6, w->mtu & 0x3f, w->tclass, ntohs(w->pkey), w->rate >> 6,
	       w->rate & 0x3f, w->pkt_life >> 6, w->pkt_life & 0x3f, sl, flow, hop, scope, state,
	       w->proxy_join);
}

static uint8_t method(const char *name)
{
	if (!strcmp(name, "set"))
		return UMAD_METHOD_SET;
	if (!strcmp(name, "delete"))
		return UMAD_SA_METHOD_DELETE;
	if (!strcmp(name, "get"))
		return UMAD_METHOD_GET;
	if (!strcmp(name, "table"))
		return UMAD_SA_METHOD_GET_TABLE;
	die("no method is named %s", name);
	return 0;
}

/* parse makes the MAD that a line asks for. */
static void parse(char *line, struct umad_sa_packet *mad)
{
	struct record r = {0};
	char *name = strtok(line, " \n"), *mask = strtok(NULL, " \n"), *field;
	uint64_t smkey;

	if (!name || !mask)
		die("a line is not METHOD MASK ...");
	while ((field = strtok(NULL, " \n")))
		set_field(&r, field);
	memset(mad, 0, sizeof(*mad));
	mad->mad_hdr.base_version = UMAD_BASE_VERSION;
	mad->mad_hdr.mgmt_class = UMAD_CLASS_SUBN_ADM;
	mad->mad_hdr.class_version = UMAD_SA_CLASS_VERSION;
	mad->mad_hdr.method = method(name);
	mad->mad_hdr.attr_id = htons(UMAD_SA_ATTR_MCMEMBER_REC);
	mad->rmpp_hdr.rmpp_version = UMAD_RMPP_VERSION;
	mad->comp_mask = htobe64(number(mask));
	smkey = htobe64(r.smkey);
	memcpy(mad->sm_key, &smkey, sizeof(smkey));
	encode(&r, (struct umad_sa_mcmember_record *)mad->data);
}

/* print_answer of a MAD of length bytes. */
static void print_answer(const struct umad_sa_packet *mad, int length)
{
	unsigned status = ntohs(mad->mad_hdr.status), size = ntohs(mad->attr_offset) * 8, count = 0;

	if (!status && mad->mad_hdr.method == UMAD_SA_METHOD_GET_TABLE_RESP)
		count = size ? (length - HEADER) / size : 0;
	else if (!status)
		count = 1;
	printf("0x%04x %u\n", status, count);
	for (unsigned i = 0; i < count; i++) {
		struct umad_sa_mcmember_record w;

		memcpy(&w, mad->data + (size_t)i * size, sizeof(w));
		print_record(&w);
	}
}

/* ask sends a MAD and prints the answer to it. */
static void ask(struct agent *a, struct umad_sa_packet *mad, void *buffer)
{
	struct umad_sa_packet *sent = umad_get_mad(buffer);
	int length;

	memset(buffer, 0, umad_size() + sizeof(*mad));
	*sent = *mad;
	sent->mad_hdr.tid = htobe64(++a->tid);
	if (umad_set_addr(buffer, a->sm_lid, SA_QP, 0, QKEY_GSI))
		die("can't address the subnet manager");
	if (umad_send(a->port, a->id, buffer, sizeof(*mad), TIMEOUT_MS, 0) < 0)
		die("can't send: %s", strerror(errno));
	for (;;) {
		length = MAX_ANSWER;
		if (umad_recv(a->port, buffer, &length, TIMEOUT_MS) < 0 || umad_status(buffer)) {
			printf("timeout\n");
			return;
		}
		/* The upper half of a TID is the kernel's. */
		if ((uint32_t)be64toh(sent->mad_hdr.tid) == (uint32_t)a->tid)
			break; /* not the late answer to an earlier request */
	}
	if (length < HEADER)
		die("an answer of %d bytes", length);
	print_answer(sent, length);
}

static void open_agent(struct agent *a)
{
	umad_port_t port;
	char gid[INET6_ADDRSTRLEN];
	__be64 raw[2];

	if (umad_init() < 0 || umad_get_port(NULL, 1, &port) < 0)
		die("no port: is this run under libumad2sim.so, with ibsim running?");
	a->sm_lid = port.sm_lid;
	raw[0] = port.gid_prefix;
	raw[1] = port.port_guid;
	printf("port %s %u %u\n", inet_ntop(AF_INET6, raw, gid, sizeof(gid)), port.base_lid, port.sm_lid);
	umad_release_port(&port);
	a->port = umad_open_port(NULL, 1);
	if (a->port < 0)
		die("can't open the port");
	a->id = umad_register(a->port, UMAD_CLASS_SUBN_ADM, UMAD_SA_CLASS_VERSION, UMAD_RMPP_VERSION, NULL);
	if (a->id < 0)
		die("can't register for SA MADs");
}

int main(void)
{
	struct agent a = {0};
	struct umad_sa_packet mad;
	char line[MAX_LINE];
	void *buffer;

	setvbuf(stdout, NULL, _IOLBF, 0);
	open_agent(&a);
	buffer = umad_alloc(1, umad_size() + MAX_ANSWER);
	if (!buffer)
		die("no memory");
	while (fgets(line, sizeof(line), stdin)) {
		parse(line, &mad);
		ask(&a, &mad, buffer);
	}
	return 0;
}
