package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

const schemaPath = "../../docs/reference/group-status.schema.json"

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.FromSlash(schemaPath))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func validate(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}

func joined() v1alpha1.MembershipStatus {
	index := int32(0)
	return v1alpha1.MembershipStatus{
		Mode:  v1alpha1.FullMember,
		Group: "feeds/market-data", State: v1alpha1.StateJoined, Interface: "net1", Device: "rxe0", Port: 1,
		MGID: "::ffff:239.1.1.7", QKey: 0x01234567, GID: "::ffff:10.0.0.2", GIDIndex: &index, Epoch: 1,
		GIDType: "RoCE v2", PKey: 0xffff, PKeyIndex: &index, TrafficClass: 255,
	}
}

func TestGroupStatusFitsSchema(t *testing.T) {
	schema := compile(t)
	index := int32(255)
	infiniBand := joined()
	infiniBand.MGID, infiniBand.GID, infiniBand.MLID, infiniBand.GIDIndex = "ff12:4001:ffff::f01:107", "fe80::2:c903:0:1", 0xc001, &index
	infiniBand.GIDType, infiniBand.PKey, infiniBand.PKeyIndex, infiniBand.TrafficClass = "", 0x8001, &index, 32
	infiniBand.QKey, infiniBand.Port, infiniBand.Epoch = 0xffffffff, 2, 1<<40
	statuses := []v1alpha1.MembershipStatus{
		joined(),
		infiniBand,
		{Group: "feeds/market-data", State: v1alpha1.StateRefused, Reason: v1alpha1.ReasonNotAllowed, Message: "no such group"},
		{Group: "feeds/market-data", State: v1alpha1.StateFailing, Interface: "net1", Device: "rxe0", Port: 1, Message: "join 239.1.1.7 on net1: no such device"},
	}
	for _, state := range []v1alpha1.MembershipState{v1alpha1.StateWaiting, v1alpha1.StateJoining, v1alpha1.StateLeaving} {
		statuses = append(statuses, v1alpha1.MembershipStatus{Group: "feeds/orders", State: state, Interface: "net1"})
	}
	for name, value := range map[string][]v1alpha1.MembershipStatus{"all": statuses, "none": {}} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, schema, text); err != nil {
			t.Errorf("%s: %s: %v", name, text, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	schema := compile(t)
	for name, change := range map[string]func(map[string]any){
		"unknown state":           func(m map[string]any) { m["state"] = "Lost" },
		"no state":                func(m map[string]any) { delete(m, "state") },
		"group without a slash":   func(m map[string]any) { m["group"] = "market-data" },
		"joined without MGID":     func(m map[string]any) { delete(m, "mgid") },
		"joined without epoch":    func(m map[string]any) { delete(m, "epoch") },
		"port 0":                  func(m map[string]any) { m["port"] = 0 },
		"MLID too large":          func(m map[string]any) { m["mlid"] = 0x10000 },
		"traffic class too large": func(m map[string]any) { m["trafficClass"] = 256 },
		"GID type unknown":        func(m map[string]any) { m["gidType"] = "RoCE v3" },
		"P_Key too large":         func(m map[string]any) { m["pkey"] = 0x10000 },
		"reason of two words":     func(m map[string]any) { m["reason"] = "no group" },
		"Q_Key as text":           func(m map[string]any) { m["qkey"] = "0x01234567" },
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(joined())
			if err != nil {
				t.Fatal(err)
			}
			var element map[string]any
			if err := json.Unmarshal(text, &element); err != nil {
				t.Fatal(err)
			}
			change(element)
			if text, err = json.Marshal([]any{element}); err != nil {
				t.Fatal(err)
			}
			if err := validate(t, schema, text); err == nil {
				t.Errorf("taken: %s", text)
			}
		})
	}
}

// A reader of this version takes what a later one may add.
func TestSchemaTakesUnknownProperties(t *testing.T) {
	if err := validate(t, compile(t), []byte(`[{"group":"a/b","state":"Waiting","mlid":0,"color":"green"}]`)); err != nil {
		t.Error(err)
	}
}

// The schema and the Go type name the same fields.
func TestSchemaNamesEveryField(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash(schemaPath))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		ID   string `json:"$id"`
		Defs struct {
			Membership struct {
				Properties map[string]struct {
					Description string `json:"description"`
				} `json:"properties"`
			} `json:"membership"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if want := "https://" + v1alpha1.Domain + "/schemas/v1alpha1/"; !strings.HasPrefix(schema.ID, want) {
		t.Errorf("$id is %s, want it below %s", schema.ID, want)
	}
	properties := schema.Defs.Membership.Properties
	for field := range reflect.TypeFor[v1alpha1.MembershipStatus]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if properties[name].Description == "" {
			t.Errorf("the schema doesn't describe %s (%s)", name, field.Name)
		}
		delete(properties, name)
	}
	for name := range properties {
		t.Errorf("the schema describes %s, which MembershipStatus doesn't have", name)
	}
}
