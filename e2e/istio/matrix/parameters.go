package matrix

import (
	"cmp"
	_ "embed" // for matrix.yaml
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/e2e/istio"
)

//go:embed matrix.yaml
var matrixYAML []byte

// A parameter is a row of matrix.yaml, whose header comment describes the fields. Values includes
// the values of Each.
type parameter struct {
	Group               string
	Pods                []pod
	Modes               []string
	SingleOnly, NoRules bool
	Refused             *istio.Refusal
	Each                map[string][]string
	Values              []value
}

// A value consists of one or more settings.
type value struct {
	name     string // unique in the row
	settings []setting
}

// A setting sets a flag ("proxy-uid=1338"), sets an environment variable ("PROXY_UID=1338"),
// removes a flag ("~proxy-uid"), or sets the content of /etc/resolv.conf ("resolv.conf=..."). The
// names of variables are in upper case.
type setting string

// resolvConf is the name of the setting of the content of /etc/resolv.conf.
const resolvConf = "resolv.conf"

// name returns the name of the flag or variable, or resolvConf.
func (s setting) name() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(string(s), "~"), "=")
	return name
}

// parameters returns the rows of the matrix.
var parameters = sync.OnceValue(func() []parameter {
	rows, err := parse(matrixYAML)
	if err != nil {
		panic("matrix.yaml: " + err.Error())
	}
	return rows
})

// parse decodes the rows of a matrix, and adds the values of Each.
func parse(text []byte) ([]parameter, error) {
	var rows []parameter
	if err := yaml.UnmarshalStrict(text, &rows); err != nil {
		return nil, err
	}
	for i, row := range rows {
		if len(row.Each) > 1 {
			return nil, fmt.Errorf("%s: each: %d names, want 1", row.Group, len(row.Each))
		}
		for _, mode := range row.Modes {
			if !slices.Contains(bothModes, mode) {
				return nil, fmt.Errorf("%s: mode %q, want one of %q", row.Group, mode, bothModes)
			}
		}
		for name, texts := range row.Each {
			for j, text := range texts {
				v := value{cmp.Or(text, "none"), []setting{setting(name + "=" + text)}}
				rows[i].Values = slices.Insert(rows[i].Values, j, v)
			}
		}
	}
	return rows, nil
}

// UnmarshalText sets p to the pod with the given name.
func (p *pod) UnmarshalText(name []byte) error {
	i := slices.IndexFunc(everyPod, func(p pod) bool { return p.name == string(name) })
	if i < 0 {
		return fmt.Errorf("no pod has the name %q", name)
	}
	*p = everyPod[i]
	return nil
}

// UnmarshalJSON decodes a value from an object whose only key is the name.
func (v *value) UnmarshalJSON(data []byte) error {
	var named map[string][]setting
	if err := json.Unmarshal(data, &named); err != nil {
		return err
	}
	if len(named) != 1 {
		return fmt.Errorf("value %s: %d names, want 1", data, len(named))
	}
	for name, settings := range named {
		*v = value{name, settings}
	}
	return nil
}

// lists replaces placeholders in matrix.yaml, such as {50 ports}, with long lists.
var lists = strings.NewReplacer(
	"{50 ports}", many(50, func(i int) string { return strconv.Itoa(2000 + 7*i) }),
	"{40 groups}", many(40, groupID), "{64 groups}", many(64, groupID),
	"{65 groups}", many(65, groupID),
	"{200 IPv4 prefixes}", many(200, func(i int) string { return fmt.Sprintf("10.0.%d.0/24", i) }),
	"{200 IPv6 prefixes}", many(200, func(i int) string { return fmt.Sprintf("fd00:%x::/32", i) }),
)

// UnmarshalText decodes a setting, and replaces its placeholders with lists.
func (s *setting) UnmarshalText(text []byte) error {
	*s = setting(lists.Replace(string(text)))
	if strings.Contains(string(*s), "{") {
		return fmt.Errorf("unknown placeholder in the setting %s", text)
	}
	return nil
}

// groupID returns the i-th group ID. The IDs are not adjacent, so that they do not form ranges.
func groupID(i int) string { return strconv.Itoa(2000 + 2*i) }
