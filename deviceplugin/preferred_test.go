package deviceplugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fourDevices are a and b on NUMA node 0, c and d on 1, of four slots each.
func fourDevices() *snapshot {
	var devices []device
	for i, name := range []string{"a", "b", "c", "d"} {
		devices = append(devices, device{name: name, numa: i / 2, slots: slotIDs(name, 4)})
	}
	return newSnapshot(devices, nil, false)
}

// except are all slots but some.
func except(s *snapshot, used ...string) []string {
	var out []string
	for _, d := range s.list {
		if !slices.Contains(used, d.ID) {
			out = append(out, d.ID)
		}
	}
	slices.Reverse(out) // kubelet's order is none
	return out
}

func TestPrefer(t *testing.T) {
	s := fourDevices()
	for _, tt := range []struct {
		name string
		used []string
		must []string
		size int32
		want string
	}{
		{name: "none", size: 0, want: ""},
		{name: "the first of equals", size: 1, want: "a-0"},
		{name: "distinct devices", size: 4, want: "a-0 b-0 c-0 d-0"},
		{name: "a second slot after all devices", size: 6, want: "a-0 b-0 c-0 d-0 a-1 b-1"},
		{name: "least used", used: []string{"a-0", "a-1", "b-0", "c-3"}, size: 3, want: "d-0 b-1 c-0"},
		{name: "the NUMA node of what must be", must: []string{"d-3"}, size: 2, want: "d-3 c-0"},
		{name: "distinct before near", must: []string{"c-0", "d-0"}, size: 4, want: "c-0 d-0 a-0 b-0"},
		{name: "near before least used", used: []string{"c-0", "c-1", "c-2"}, must: []string{"d-0"}, size: 2, want: "d-0 c-3"},
		{name: "both nodes are near", must: []string{"a-0", "c-0"}, used: []string{"b-0"}, size: 3, want: "a-0 c-0 d-0"},
		{name: "all that must be", must: []string{"a-1", "a-0"}, size: 2, want: "a-1 a-0"},
		{name: "named twice", must: []string{"a-1", "a-1"}, size: 2, want: "a-1 b-0"},
		{name: "one device is used up", used: []string{"a-0", "a-1", "a-2", "a-3"}, size: 5, want: "b-0 c-0 d-0 b-1 c-1"},
	} {
		got, err := s.prefer(&pluginapi.ContainerPreferredAllocationRequest{
			AvailableDeviceIDs: except(s, tt.used...), MustIncludeDeviceIDs: tt.must, AllocationSize: tt.size,
		})
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}

// What kubelet knows may be older: the advice is as good as it can be.
func TestPreferOfUnknown(t *testing.T) {
	s := fourDevices()
	for _, tt := range []struct {
		available, must []string
		size            int32
		want            string
	}{
		{[]string{"gone-0", "b-0"}, nil, 1, "b-0"},
		{[]string{"gone-0", "b-0"}, nil, 2, "b-0"}, // kubelet takes the rest as it likes
		{[]string{"gone-0", "b-0"}, []string{"gone-0"}, 2, "gone-0 b-0"},
		{nil, nil, 2, ""},
	} {
		got, err := s.prefer(&pluginapi.ContainerPreferredAllocationRequest{
			AvailableDeviceIDs: tt.available, MustIncludeDeviceIDs: tt.must, AllocationSize: tt.size,
		})
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
}

func TestPreferRefuses(t *testing.T) {
	s := fourDevices()
	for _, tt := range []struct {
		available, must []string
		size            int32
		want            string
	}{
		{[]string{"a-0"}, []string{"b-0"}, 1, `"b-0" must be included and isn't available`},
		{[]string{"a-0", "b-0"}, []string{"a-0", "b-0"}, 1, "allocation size 1: 2 must be included"},
		{[]string{"a-0"}, nil, -1, "allocation size -1"},
	} {
		got, err := s.prefer(&pluginapi.ContainerPreferredAllocationRequest{
			AvailableDeviceIDs: tt.available, MustIncludeDeviceIDs: tt.must, AllocationSize: tt.size,
		})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
}

func TestSlotIDs(t *testing.T) {
	if got := slotIDs("mlx5_0", 3); !slices.Equal(got, []string{"mlx5_0-0", "mlx5_0-1", "mlx5_0-2"}) {
		t.Error(got)
	}
	seen := map[string]bool{}
	for _, device := range []string{"a", "a-1", strings.Repeat("x", 58), strings.Repeat("x", 62) + "1", strings.Repeat("x", 62) + "2"} {
		ids := slotIDs(device, maxSlots)
		for _, id := range ids {
			if len(id) > maxID || seen[id] {
				t.Fatalf("ID %s of %d bytes, seen before: %v", id, len(id), seen[id])
			}
			seen[id] = true
		}
		if !slices.Equal(ids, slotIDs(device, maxSlots)) {
			t.Errorf("the IDs of %s change", device)
		}
	}
}

// How many slots a resource may have is kubelet's bound (TestALongList).
func TestTooManySlots(t *testing.T) {
	r := &Resource{ResourceName: "a", RDMAHCAMax: ptr(maxSlots)}
	var assigned []hostDevice
	for i := range 7 {
		d := softRoCE(fmt.Sprintf("%060d", i))
		d.NUMANode = 255
		assigned = append(assigned, d)
	}
	devices, problems := resourceDevices(r, assigned, func(string) bool { return true })
	s := newSnapshot(devices, nil, false)
	if want := 7 * (maxResourceSlots / 7); len(s.list) != want || len(s.byID) != want {
		t.Errorf("%d slots, %d IDs, want %d", len(s.list), len(s.byID), want)
	}
	if len(problems) != 1 || !strings.Contains(problems[0].String(), "resource rdma/a: 7 devices of 10000 slots each are more than the 32768") {
		t.Errorf("problems %v", problems)
	}
}
