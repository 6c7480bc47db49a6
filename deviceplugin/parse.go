package deviceplugin

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// What a configuration may have at most. A ConfigMap is at most 1 MiB.
const (
	maxConfig    = 256 << 10 // bytes
	maxResources = 64
	maxList      = 256
	maxString    = 253
	maxSlots     = 10000
	maxInterval  = 86400 // s
	maxErrors    = 10    // told of one file
)

var (
	hexID   = regexp.MustCompile(`^[0-9a-f]{4}$`)
	cdiKind = regexp.MustCompile(`^[A-Za-z][^/]*/[A-Za-z]`)
)

// Parse reads a configuration in JSON or YAML. It refuses what it doesn't know
// and what can't be meant; the error has a line for each field, which says where
// it is and what to do. Selectors come back in the spelling that the kernel has.
func Parse(b []byte) (*Config, error) {
	if len(b) > maxConfig {
		return nil, fmt.Errorf("configuration: %d bytes: at most %d are read; use patterns in place of long lists", len(b), maxConfig)
	}
	text, err := toJSON(b)
	if err != nil {
		return nil, err
	}
	config := &Config{}
	strict, err := json.UnmarshalStrict(text, config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w: correct the value; in YAML, text that looks like a number needs quotes", err)
	}
	var problems []error
	for _, err := range strict {
		problems = append(problems, fieldError(err))
	}
	problems = append(problems, config.validate()...)
	if more := len(problems) - maxErrors; more > 0 {
		problems = append(problems[:maxErrors], fmt.Errorf("configuration: and %d more", more))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return config, nil
}

// toJSON turns YAML into JSON. JSON is left alone: YAML refuses its tabs.
func toJSON(b []byte) ([]byte, error) {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	if trimmed := bytes.TrimSpace(b); len(trimmed) > 0 && trimmed[0] == '{' {
		return trimmed, nil
	}
	if i := documentEnd(b); i > 0 {
		return nil, fmt.Errorf("configuration: line %d: a second YAML document: put all resources into one configList", i)
	}
	text, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return nil, fmt.Errorf("configuration: neither JSON nor YAML: %w", err)
	}
	return text, nil
}

// documentEnd is the line where a first YAML document ends and another might
// follow, which the parser would pass over; 0: there is none.
func documentEnd(b []byte) int {
	begun := false
	for i, line := range bytes.Split(b, []byte("\n")) {
		line = bytes.TrimRight(line, " \t\r")
		marker := bytes.Equal(line, []byte("---")) || bytes.HasPrefix(line, []byte("--- "))
		if begun && (marker || bytes.Equal(line, []byte("..."))) {
			return i + 1
		}
		begun = begun || marker || (len(line) > 0 && line[0] != '#')
	}
	return 0
}

// fieldError says what is known in place of an unknown field.
func fieldError(err error) error {
	known := "periodicUpdateInterval, configList"
	switch text := err.Error(); {
	case !strings.HasPrefix(text, "unknown field"):
		return fmt.Errorf("configuration: %w: keep one of them", err)
	case strings.Contains(text, ".selectors."):
		known = "vendors, deviceIDs, drivers, ifNames, linkTypes, linkLayers, pciAddresses, rdmaDevices"
	case strings.Contains(text, "configList["):
		known = "resourceName, resourcePrefix, rdmaHcaMax, devices, selectors, exposeRDMACM, exposeUMAD, cdi"
	}
	return fmt.Errorf("configuration: %w: remove it, or use one of %s", err, known)
}

func (c *Config) validate() []error {
	var v validator
	if i := c.PeriodicUpdateInterval; i != nil && (*i < 0 || *i > maxInterval) {
		v.add("periodicUpdateInterval", "%d: give 0 to %d seconds", *i, maxInterval)
	}
	if c.ConfigList == nil {
		v.add("configList", "missing: list the resources, [] for none but %s, or remove the file for all devices as %s", GateResource, DefaultResource)
	}
	if len(c.ConfigList) > maxResources {
		v.add("configList", "%d resources: give at most %d", len(c.ConfigList), maxResources)
		return v.errs
	}
	seen := map[string]int{}
	for i := range c.ConfigList {
		at := fmt.Sprintf("configList[%d]", i)
		r := &c.ConfigList[i]
		v.resource(at, r)
		if r.ResourceName == strings.TrimPrefix(GateResource, Prefix+"/") {
			v.add(at+".resourceName", "%q is %s's, which is always served: use another name", r.ResourceName, GateResource)
		}
		if first, ok := seen[r.ResourceName]; ok && r.ResourceName != "" {
			v.add(at+".resourceName", "%q is that of configList[%d], and would have the same path in a container: use another name", r.ResourceName, first)
		} else {
			seen[r.ResourceName] = i
		}
	}
	return v.errs
}

// validator gathers what is wrong, by field.
type validator struct{ errs []error }

func (v *validator) add(field, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("configuration: %s: %s", field, fmt.Sprintf(format, args...)))
}

func (v *validator) resource(at string, r *Resource) {
	if strings.Contains(r.ResourceName, "/") {
		v.add(at+".resourceName", "%.80q: leave out the prefix, resourcePrefix is for it", r.ResourceName)
	} else if errs := validation.IsQualifiedName(r.ResourceName); len(errs) > 0 {
		v.add(at+".resourceName", "%.80q: give 1 to 63 letters, digits, '-', '_' and '.', a letter or digit first and last", r.ResourceName)
	}
	// kubelet takes a name that is still one with "requests." before it.
	if p := r.ResourcePrefix; p != "" {
		if len(validation.IsDNS1123Subdomain("requests."+p)) > 0 || p == "kubernetes.io" || strings.HasSuffix(p, ".kubernetes.io") {
			v.add(at+".resourcePrefix", "%.80q: give a DNS subdomain that isn't Kubernetes' own, such as %q", p, Prefix)
		}
	}
	if n := r.slots(); n < 0 || n > maxSlots {
		v.add(at+".rdmaHcaMax", "%d: give 0 to %d slots of each device", n, maxSlots)
	}
	if r.CDI && !cdiKind.MatchString(r.Name()) {
		v.add(at+".cdi", "CDI has no names such as %.80q: use a resourceName and a resourcePrefix that begin with a letter", r.Name())
	}
	if len(r.Devices) > 0 && len(r.Selectors.IfNames) > 0 {
		v.add(at+".devices", "given beside selectors.ifNames, which means the same: put the names into selectors.ifNames")
	}
	v.patterns(at+".devices", r.Devices)
	v.selectors(at+".selectors", &r.Selectors)
}

func (v *validator) selectors(at string, s *Selectors) {
	v.ids(at+".vendors", s.Vendors)
	v.ids(at+".deviceIDs", s.DeviceIDs)
	v.patterns(at+".drivers", s.Drivers)
	v.patterns(at+".ifNames", s.IfNames)
	v.patterns(at+".rdmaDevices", s.RDMADevices)
	v.oneOf(at+".linkTypes", s.LinkTypes, "ether", "infiniband")
	v.oneOf(at+".linkLayers", s.LinkLayers, "Ethernet", "InfiniBand")
	for i, a := range s.PCIAddresses {
		a = strings.ToLower(a)
		if strings.Count(a, ":") == 1 {
			a = "0000:" + a // without the domain, as lspci shows it
		}
		s.PCIAddresses[i] = a
	}
	v.patterns(at+".pciAddresses", s.PCIAddresses)
}

// bounded tells whether a list may be looked at further.
func (v *validator) bounded(at string, list []string) bool {
	if len(list) > maxList {
		v.add(at, "%d entries: give at most %d, or patterns", len(list), maxList)
		return false
	}
	for i, s := range list {
		if s == "" || len(s) > maxString {
			v.add(fmt.Sprintf("%s[%d]", at, i), "%d bytes: give 1 to %d", len(s), maxString)
			return false
		}
	}
	return true
}

func (v *validator) patterns(at string, list []string) {
	if !v.bounded(at, list) {
		return
	}
	for i, s := range list {
		if _, err := path.Match(s, ""); err != nil {
			v.add(fmt.Sprintf("%s[%d]", at, i), "%q isn't a pattern: close its bracket, or put \\ before it", s)
		}
	}
}

func (v *validator) ids(at string, list []string) {
	if !v.bounded(at, list) {
		return
	}
	for i, s := range list {
		list[i] = strings.TrimPrefix(strings.ToLower(s), "0x")
		if !hexID.MatchString(list[i]) {
			v.add(fmt.Sprintf("%s[%d]", at, i), "%q: give four hexadecimal digits in quotes, such as \"15b3\" (lspci -n shows them)", s)
		}
	}
}

func (v *validator) oneOf(at string, list []string, known ...string) {
	if !v.bounded(at, list) {
		return
	}
	for i, s := range list {
		j := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, s) })
		if j < 0 {
			v.add(fmt.Sprintf("%s[%d]", at, i), "%q: give one of %s", s, strings.Join(known, ", "))
			continue
		}
		list[i] = known[j]
	}
}
