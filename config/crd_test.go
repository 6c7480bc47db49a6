package config_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func group(namespace string, spec v1alpha1.MulticastGroupSpec) *v1alpha1.MulticastGroup {
	return &v1alpha1.MulticastGroup{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "group-", Namespace: namespace},
		Spec:       spec,
	}
}

func address(a string) v1alpha1.MulticastGroupSpec { return v1alpha1.MulticastGroupSpec{Address: a} }

func mgid(m string) v1alpha1.MulticastGroupSpec { return v1alpha1.MulticastGroupSpec{MGID: m} }

func nodes(selector map[string]v1alpha1.LabelValue) v1alpha1.MulticastGroupSpec {
	return v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", Nodes: &v1alpha1.NodeMembers{NodeSelector: selector}}
}

func trafficClass(c int32) v1alpha1.MulticastGroupSpec {
	return v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", TrafficClass: &c}
}

func selector(s v1alpha1.InterfaceSelector) v1alpha1.MulticastGroupSpec {
	return v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", InterfaceSelector: &s}
}

func TestGroupRefused(t *testing.T) {
	const (
		canonical = "must be an IPv4 or IPv6 multicast address in its canonical form, such as 239.1.1.7 or ff15::7"
		multicast = "allowed are 224.0.1.0 to 239.255.255.255, and ff00::/8 without"
		linkLocal = "must not be link-local (224.0.0.0/24 isn't forwarded): allowed are 224.0.1.0 to"
		reserved  = "ff00::/16, ff01::/16, ff02::/16 and ff11::/16 aren't allowed; ff15::7, say, is"
		pattern   = "must be a shell pattern of letters, digits"
		subnet    = "must be a subnet in CIDR notation without host bits, such as 10.0.0.0/24 or fd00::/64"
		namespace = "must be the name of a namespace, or * for all"
		gid       = "must be a multicast GID (ff00::/8) in its canonical form, such as ff15:a01b:fe80::7"
		flags     = "must not use the reserved flags: a multicast GID begins with ff0 (well-known) or ff1 (transient)"
		scope     = "must not have a reserved or interface-local scope (0, 1, f), nor be well-known and link-local (ff02::/16)"
		signature = "must not have signature a01b with link-local scope (2)"
		one       = "exactly one of address and mgid must be set: address for an IP multicast address such as 239.1.1.7, mgid for"
		ethernet  = "a verbatim MGID is joined on InfiniBand alone: add InfiniBand, leave linkLayers out, or use address"
		labelKey  = "must have labels' names as keys, such as topology.kubernetes.io/rack"
		label     = "must be a label's value: at most 63 letters"
	)
	long := make([]string, 257)
	for i := range long {
		long[i] = "n" + strings.Repeat("x", i%50) + string(rune('a'+i/50))
	}
	tooMany := map[string]v1alpha1.LabelValue{}
	for i := range 33 {
		tooMany["n"+long[i]] = "x"
	}
	for name, tc := range map[string]struct {
		spec  v1alpha1.MulticastGroupSpec
		field string
		want  string
	}{
		"no spec":                    {v1alpha1.MulticastGroupSpec{}, "spec", "Required value"},
		"both address and mgid":      {v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", MGID: "ff15:a01b:fe80::7"}, "spec", one},
		"MGID zero":                  {mgid("::"), "spec.mgid", gid},
		"MGID unicast":               {mgid("fe80::1"), "spec.mgid", gid},
		"MGID upper case":            {mgid("FF15:A01B:FE80::7"), "spec.mgid", gid},
		"MGID full":                  {mgid("ff15:a01b:fe80:0:0:0:0:7"), "spec.mgid", gid},
		"MGID as IPv4":               {mgid("239.1.1.7"), "spec.mgid", gid},
		"MGID with IPv4 tail":        {mgid("ff12:401b:ffff::239.1.1.7"), "spec.mgid", gid},
		"MGID of hexadecimal":        {mgid("0xff15a01bfe8000000000000000000007"), "spec.mgid", gid},
		"MGID too long":              {mgid("ff15:" + strings.Repeat("0", 60)), "spec.mgid", "may not be more than 64"},
		"MGID reserved flags":        {mgid("ff35:40:fd00::7"), "spec.mgid", flags},
		"MGID all flags":             {mgid("fff5::7"), "spec.mgid", flags},
		"MGID scope 0":               {mgid("ff10::7"), "spec.mgid", scope},
		"MGID scope f":               {mgid("ff1f::7"), "spec.mgid", scope},
		"MGID well-known scope f":    {mgid("ff0f::7"), "spec.mgid", scope},
		"MGID interface-local":       {mgid("ff11::7"), "spec.mgid", scope},
		"MGID well-known scope 0":    {mgid("ff00::7"), "spec.mgid", scope},
		"MGID all channel adapters":  {mgid("ff02::1"), "spec.mgid", scope},
		"MGID of OpenSM's own":       {mgid("ff12:a01b:fe80::7"), "spec.mgid", signature},
		"MGID on Ethernet":           {v1alpha1.MulticastGroupSpec{MGID: "ff15:a01b:fe80::7", InterfaceSelector: &v1alpha1.InterfaceSelector{LinkLayers: []v1alpha1.LinkLayer{v1alpha1.LinkLayerEthernet}}}, "spec.interfaceSelector.linkLayers", ethernet},
		"traffic class negative":     {trafficClass(-1), "spec.trafficClass", "should be greater than or equal to 0"},
		"traffic class too large":    {trafficClass(256), "spec.trafficClass", "should be less than or equal to 255"},
		"label's key with blank":     {nodes(map[string]v1alpha1.LabelValue{"my rack": "a"}), "spec.nodes.nodeSelector", labelKey},
		"label's key empty":          {nodes(map[string]v1alpha1.LabelValue{"": "a"}), "spec.nodes.nodeSelector", labelKey},
		"label's key two slashes":    {nodes(map[string]v1alpha1.LabelValue{"a/b/c": "a"}), "spec.nodes.nodeSelector", labelKey},
		"label's key too long":       {nodes(map[string]v1alpha1.LabelValue{strings.Repeat("k", 64): "a"}), "spec.nodes.nodeSelector", labelKey},
		"label's prefix upper case":  {nodes(map[string]v1alpha1.LabelValue{"Example.com/rack": "a"}), "spec.nodes.nodeSelector", labelKey},
		"label's value with blank":   {nodes(map[string]v1alpha1.LabelValue{"rack": "a b"}), "spec.nodes.nodeSelector[rack]", label},
		"label's value with a dash":  {nodes(map[string]v1alpha1.LabelValue{"rack": "a-"}), "spec.nodes.nodeSelector[rack]", label},
		"label's value too long":     {nodes(map[string]v1alpha1.LabelValue{"rack": v1alpha1.LabelValue(strings.Repeat("v", 64))}), "spec.nodes.nodeSelector.rack", "may not be more than 63"},
		"too many labels":            {nodes(tooMany), "spec.nodes.nodeSelector", "must have at most 32 items"},
		"link layer twice":           {selector(v1alpha1.InterfaceSelector{LinkLayers: []v1alpha1.LinkLayer{"Ethernet", "Ethernet"}}), "spec.interfaceSelector.linkLayers[1]", "Duplicate value"},
		"too many devices":           {selector(v1alpha1.InterfaceSelector{Devices: long[:65]}), "spec.interfaceSelector.devices", "must have at most 64 items"},
		"too many interfaces":        {selector(v1alpha1.InterfaceSelector{Interfaces: long[:65]}), "spec.interfaceSelector.interfaces", "must have at most 64 items"},
		"too many subnets":           {selector(v1alpha1.InterfaceSelector{Subnets: long[:65]}), "spec.interfaceSelector.subnets", "must have at most 64 items"},
		"device pattern too long":    {selector(v1alpha1.InterfaceSelector{Devices: []string{strings.Repeat("d", 65)}}), "spec.interfaceSelector.devices[0]", "may not be more than 64"},
		"interface pattern too long": {selector(v1alpha1.InterfaceSelector{Interfaces: []string{strings.Repeat("d", 65)}}), "spec.interfaceSelector.interfaces[0]", "may not be more than 64"},
		"namespace too long":         {v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", AllowedNamespaces: []string{strings.Repeat("n", 64)}}, "spec.allowedNamespaces[0]", "may not be more than 63"},
		"neither address nor mgid":   {v1alpha1.MulticastGroupSpec{Mode: v1alpha1.FullMember}, "spec", "exactly one of address and mgid must be set"},
		"unicast":                    {address("10.0.0.1"), "spec.address", multicast},
		"unicast just below":         {address("223.255.255.255"), "spec.address", multicast},
		"class E":                    {address("240.0.0.1"), "spec.address", multicast},
		"broadcast":                  {address("255.255.255.255"), "spec.address", multicast},
		"IPv6 unicast":               {address("fe80::1"), "spec.address", multicast},
		"all hosts":                  {address("224.0.0.1"), "spec.address", linkLocal},
		"last of 224.0.0.0/24":       {address("224.0.0.255"), "spec.address", linkLocal},
		"reserved ff00":              {address("ff00::7"), "spec.address", reserved},
		"interface-local ff01":       {address("ff01::7"), "spec.address", reserved},
		"link-local ff02":            {address("ff02::7"), "spec.address", reserved},
		"interface-local ff11":       {address("ff11::7"), "spec.address", reserved},
		"IPv6 upper case":            {address("FF15::7"), "spec.address", canonical},
		"IPv6 not shortened":         {address("ff15:0::7"), "spec.address", canonical},
		"IPv6 full":                  {address("ff15:0000:0000:0000:0000:0000:0000:0007"), "spec.address", canonical},
		"IPv4-mapped":                {address("::ffff:239.1.1.7"), "spec.address", canonical},
		"zone":                       {address("ff15::7%eth0"), "spec.address", canonical},
		"leading zero":               {address("239.01.1.7"), "spec.address", canonical},
		"blank":                      {address(" 239.1.1.7"), "spec.address", canonical},
		"CIDR":                       {address("239.1.1.7/32"), "spec.address", canonical},
		"words":                      {address("all of them"), "spec.address", canonical},
		"too long":                   {address(strings.Repeat("2", 65)), "spec.address", "may not be more than 64"},
		"unknown port space":         {v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", PortSpace: "TCP"}, "spec.portSpace", `supported values: "UDP", "IPoIB"`},
		"unknown mode":               {v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", Mode: "NonMember"}, "spec.mode", `supported values: "FullMember", "SendOnlyFullMember"`},
		"unknown link layer":         {selector(v1alpha1.InterfaceSelector{LinkLayers: []v1alpha1.LinkLayer{"RoCE"}}), "spec.interfaceSelector.linkLayers[0]", `supported values: "Ethernet", "InfiniBand"`},
		"device twice":               {selector(v1alpha1.InterfaceSelector{Devices: []string{"a", "a"}}), "spec.interfaceSelector.devices[1]", "Duplicate value"},
		"device pattern unclosed":    {selector(v1alpha1.InterfaceSelector{Devices: []string{"mlx5_*", "mlx5_[0-3"}}), "spec.interfaceSelector.devices[1]", pattern},
		"device pattern empty class": {selector(v1alpha1.InterfaceSelector{Devices: []string{"mlx5_[]"}}), "spec.interfaceSelector.devices[0]", pattern},
		"device pattern with slash":  {selector(v1alpha1.InterfaceSelector{Devices: []string{"a/b"}}), "spec.interfaceSelector.devices[0]", pattern},
		"interface pattern range":    {selector(v1alpha1.InterfaceSelector{Interfaces: []string{"net[a-]"}}), "spec.interfaceSelector.interfaces[0]", pattern},
		"empty interface":            {selector(v1alpha1.InterfaceSelector{Interfaces: []string{""}}), "spec.interfaceSelector.interfaces[0]", "should be at least 1 chars long"},
		"subnet with host bits":      {selector(v1alpha1.InterfaceSelector{Subnets: []string{"10.0.0.1/24"}}), "spec.interfaceSelector.subnets[0]", subnet},
		"subnet without length":      {selector(v1alpha1.InterfaceSelector{Subnets: []string{"10.0.0.0"}}), "spec.interfaceSelector.subnets[0]", subnet},
		"not a namespace":            {v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", AllowedNamespaces: []string{"Trading"}}, "spec.allowedNamespaces[0]", namespace},
		"namespace pattern":          {v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", AllowedNamespaces: []string{"team-*"}}, "spec.allowedNamespaces[0]", namespace},
		"too many namespaces":        {v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", AllowedNamespaces: long}, "spec.allowedNamespaces", "must have at most 256 items"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, plane.Config)
			err := c.Create(t.Context(), group("default", tc.spec))
			if !apierrors.IsInvalid(err) {
				t.Fatalf("Create: %v, want it refused as invalid", err)
			}
			for _, want := range []string{tc.field + ":", tc.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message doesn't say %q: %v", want, err)
				}
			}
		})
	}
}

func TestGroupTaken(t *testing.T) {
	c := newClient(t, plane.Config)
	ns := namespace(t, c)
	for name, spec := range map[string]v1alpha1.MulticastGroupSpec{
		"first address":       address("224.0.1.0"),
		"last address":        address("239.255.255.255"),
		"IPv6":                address("ff15::7"),
		"IPv6 transient link": address("ff12::7"),
		"IPv6 with IPv4 tail": address("ff0e::ef01:107"),
		"IPv6 longest":        address("ff3e:1234:5678:9abc:def1:1234:5678:9abc"),
		"IPv6 verbatim":       address("ff12:a01b:fe80::1"),
		"MGID":                mgid("ff15:a01b:fe80::7"),
		"MGID longest":        mgid("ff1e:1234:5678:9abc:def1:1234:5678:9abc"),
		"MGID of IPoIB":       mgid("ff12:401b:ffff::f01:107"),
		"MGID well-known":     mgid("ff0e::7"),
		"MGID first scope":    mgid("ff03::7"),
		"MGID in port space IPoIB on both link layers": {
			MGID: "ff12:601b:8001::1", PortSpace: v1alpha1.PortSpaceIPoIB,
			InterfaceSelector: &v1alpha1.InterfaceSelector{LinkLayers: []v1alpha1.LinkLayer{v1alpha1.LinkLayerEthernet, v1alpha1.LinkLayerInfiniBand}},
		},
		"MGID with a selector of other things": {MGID: "ff15:a01b:fe80::7", InterfaceSelector: &v1alpha1.InterfaceSelector{Interfaces: []string{"ib*"}, LinkLayers: []v1alpha1.LinkLayer{}}},
		"first traffic class":                  trafficClass(0),
		"last traffic class":                   trafficClass(255),
		"every node":                           {Address: "239.1.1.7", Nodes: &v1alpha1.NodeMembers{}},
		"some nodes":                           nodes(map[string]v1alpha1.LabelValue{"rack": "a", "topology.kubernetes.io/zone": "A_1.b", "empty": "", strings.Repeat("p", 63) + ".example/" + strings.Repeat("k", 63): v1alpha1.LabelValue(strings.Repeat("v", 63))}),
		"everything": {
			Address: "239.1.1.8", PortSpace: v1alpha1.PortSpaceIPoIB, Mode: v1alpha1.SendOnlyFullMember,
			InterfaceSelector: &v1alpha1.InterfaceSelector{
				LinkLayers: []v1alpha1.LinkLayer{v1alpha1.LinkLayerEthernet, v1alpha1.LinkLayerInfiniBand},
				Devices:    []string{"mlx5_*", "rxe?", "mlx5_[0-3]", "mlx5_[^ab]"},
				Interfaces: []string{"net*", "eth0.100", "ib0:1"},
				Subnets:    []string{"10.0.0.0/24", "fd00::/64", "0.0.0.0/0"},
			},
			AllowedNamespaces: []string{"*", "trading", "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.Create(t.Context(), group(ns, spec)); err != nil {
				t.Fatal(err)
			}
			if spec.InterfaceSelector == nil {
				return
			}
			for _, p := range append(spec.InterfaceSelector.Devices, spec.InterfaceSelector.Interfaces...) {
				if _, err := path.Match(p, "x"); err != nil {
					t.Errorf("pattern %q is taken at apply, but can't be matched: %v", p, err)
				}
			}
		})
	}
}

func TestGroupDefaults(t *testing.T) {
	c := newClient(t, plane.Config)
	got := group(namespace(t, c), address("239.1.1.7"))
	if err := c.Create(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", PortSpace: v1alpha1.PortSpaceUDP, Mode: v1alpha1.FullMember}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestGroupImmutable(t *testing.T) {
	const want = "address, mgid and portSpace can't be changed: delete the group and apply it anew"
	byAddress := v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", PortSpace: v1alpha1.PortSpaceIPoIB}
	byMGID := mgid("ff15:a01b:fe80::7")
	for name, tc := range map[string]struct {
		from    v1alpha1.MulticastGroupSpec
		change  func(*v1alpha1.MulticastGroupSpec)
		refused bool
	}{
		"address":             {byAddress, func(s *v1alpha1.MulticastGroupSpec) { s.Address = "239.1.1.8" }, true},
		"address to mgid":     {byAddress, func(s *v1alpha1.MulticastGroupSpec) { s.Address, s.MGID = "", "ff15::7" }, true},
		"mgid beside address": {byAddress, func(s *v1alpha1.MulticastGroupSpec) { s.MGID = "ff15::7" }, true},
		"address left out":    {byAddress, func(s *v1alpha1.MulticastGroupSpec) { s.Address = "" }, true},
		"mgid":                {byMGID, func(s *v1alpha1.MulticastGroupSpec) { s.MGID = "ff15:a01b:fe80::8" }, true},
		"mgid to address":     {byMGID, func(s *v1alpha1.MulticastGroupSpec) { s.Address, s.MGID = "239.1.1.7", "" }, true},
		"mgid left out":       {byMGID, func(s *v1alpha1.MulticastGroupSpec) { s.MGID = "" }, true},
		"port space":          {byAddress, func(s *v1alpha1.MulticastGroupSpec) { s.PortSpace = v1alpha1.PortSpaceUDP }, true},
		"port space of mgid":  {byMGID, func(s *v1alpha1.MulticastGroupSpec) { s.PortSpace = v1alpha1.PortSpaceIPoIB }, true},
		"port space left out": {byAddress, func(s *v1alpha1.MulticastGroupSpec) { s.PortSpace = "" }, true},
		"mode":                {byAddress, func(s *v1alpha1.MulticastGroupSpec) { s.Mode = v1alpha1.SendOnlyFullMember }, false},
		"allowed namespaces":  {byAddress, func(s *v1alpha1.MulticastGroupSpec) { s.AllowedNamespaces = []string{"*"} }, false},
		"traffic class":       {byAddress, func(s *v1alpha1.MulticastGroupSpec) { s.TrafficClass = new(int32) }, false},
		"nodes":               {byMGID, func(s *v1alpha1.MulticastGroupSpec) { s.Nodes = &v1alpha1.NodeMembers{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, plane.Config)
			g := group("default", tc.from)
			if err := c.Create(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			tc.change(&g.Spec)
			err := c.Update(t.Context(), g)
			switch {
			case !tc.refused && err != nil:
				t.Fatal(err)
			case tc.refused && !apierrors.IsInvalid(err):
				t.Fatalf("Update: %v, want it refused as invalid", err)
			case tc.refused && !strings.Contains(err.Error(), want):
				t.Errorf("the message doesn't say %q: %v", want, err)
			}
		})
	}
}

// What a user of kubectl sees, and that it doesn't end in success.
func TestKubectlApplyRefused(t *testing.T) {
	manifest := func(address string) string {
		return "apiVersion: rdma-multicast.dev/v1alpha1\nkind: MulticastGroup\nmetadata:\n  name: by-kubectl\nspec:\n  address: " + address + "\n"
	}
	if out, err := kubectl(t, manifest("239.1.1.9"), "apply", "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
	for name, tc := range map[string]struct{ manifest, want string }{
		"unicast":       {manifest("10.0.0.1"), "spec.address: Invalid value: \"10.0.0.1\": must be a multicast address: allowed are 224.0.1.0 to 239.255.255.255"},
		"link-local":    {manifest("224.0.0.1"), "must not be link-local"},
		"not canonical": {manifest("FF15::7"), "in its canonical form, such as 239.1.1.7 or ff15::7"},
		"changed":       {manifest("239.1.1.10"), "address, mgid and portSpace can't be changed"},
		"MGID":          {strings.Replace(manifest("ff12:a01b:fe80::7"), "address:", "mgid:", 1), "spec.mgid: Invalid value: \"ff12:a01b:fe80::7\": must not have signature a01b with link-local scope"},
		"both":          {manifest("239.1.1.9") + "  mgid: ff15::7\n", "exactly one of address and mgid must be set"},
		"MGID on RoCE":  {strings.Replace(manifest("ff15::7"), "address:", "mgid:", 1) + "  interfaceSelector: {linkLayers: [Ethernet]}\n", "spec.interfaceSelector.linkLayers: Invalid value"},
		"node selector": {manifest("239.1.1.9") + "  nodes: {nodeSelector: {my rack: a}}\n", "spec.nodes.nodeSelector: Invalid value"},
		"unknown field": {manifest("239.1.1.9") + "  addresses: 239.1.1.9\n", `unknown field "spec.addresses"`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := kubectl(t, tc.manifest, "apply", "-f", "-")
			if err == nil {
				t.Errorf("kubectl apply succeeded")
			}
			if !strings.Contains(out, tc.want) {
				t.Errorf("kubectl apply doesn't say %q:\n%s", tc.want, out)
			}
		})
	}
}

func TestKubectlGetColumns(t *testing.T) {
	c := newClient(t, plane.Config)
	ns := namespace(t, c)
	verbatim := mgid("ff15:a01b:fe80::7")
	verbatim.Mode, verbatim.PortSpace = v1alpha1.SendOnlyFullMember, v1alpha1.PortSpaceIPoIB
	for _, object := range []client.Object{
		&v1alpha1.MulticastNode{ObjectMeta: metav1.ObjectMeta{Name: ns}}, group(ns, address("239.1.1.7")), group(ns, verbatim),
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string][]string{
		"mcg":         {"NAME ADDRESS NODES READY REASON AGE", " 239.1.1.7 ", " ff15:a01b:fe80::7 "},
		"mcg -o wide": {"NAME ADDRESS PORTSPACE MODE NODES READY REASON AGE", " 239.1.1.7 UDP FullMember ", " ff15:a01b:fe80::7 IPoIB SendOnlyFullMember "},
		"mcn":         {"NAME RDMA REASON DEVICES AGE"},
		"mcn -o wide": {"NAME RDMA REASON DEVICES PROBLEMS AGE"},
	} {
		out, err := kubectl(t, "", append([]string{"get", "-n", ns}, strings.Fields(args)...)...)
		if err != nil {
			t.Fatalf("kubectl get %s: %v\n%s", args, err, out)
		}
		lines := strings.Split(out, "\n")
		for i := range lines {
			lines[i] = strings.Join(strings.Fields(lines[i]), " ")
		}
		if lines[0] != want[0] {
			t.Errorf("kubectl get %s shows %q, want %q", args, lines[0], want[0])
		}
		for _, w := range want[1:] {
			if !strings.Contains(strings.Join(lines, "\n"), w) {
				t.Errorf("kubectl get %s doesn't show %q:\n%s", args, w, out)
			}
		}
	}
}

// kubectl runs the real one as the administrator.
func kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := plane.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), plane.Kubectl, append(args, "--cache-dir", dir)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
