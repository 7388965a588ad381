package cluster

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
	"github.com/sluice-mesh/sluice/e2e/embedded"
)

// configFiles contains configurations, which are templates.
//
//go:embed config
var configFiles embed.FS

// Directories and files of a node, and the port of the API server. The files in the directory
// config also contain these names.
const (
	kubernetesDir        = "/etc/kubernetes"
	pkiDir               = kubernetesDir + "/pki/"
	adminKubeconfig      = kubernetesDir + "/admin.conf"
	kubeletConfigPath    = kubernetesDir + "/kubelet.yaml"
	proxyConfigPath      = kubernetesDir + "/kube-proxy.yaml"
	containerdConfigPath = "/etc/containerd/config.toml"
	resolvConf           = "/etc/resolv-pods.conf"
	apiPort              = "6443"
)

// kubeconfigPath returns the path of a program's kubeconfig.
func kubeconfigPath(program string) string { return kubernetesDir + "/" + program + ".conf" }

// render executes the template file with the parameters and values from the options, and returns
// the configuration.
func (o Options) render(file string, parameters map[string]any) []byte {
	t, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"json": func(value any) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
		"list": func(elements ...string) []string { return elements },
	}).ParseFS(configFiles, "config/"+file)
	all := map[string]any{
		"Name": o.Name, "DualStack": o.DualStack, "CNIVersion": cmp.Or(o.CNIVersion, "1.0.0"),
		"FeatureGates": o.FeatureGates, "FeatureGateList": o.featureGateList(),
		"PodRanges":     o.joinedAddresses(podRangeIPv4, podRangeIPv6),
		"ServiceRanges": o.joinedAddresses(serviceRangeIPv4, serviceRangeIPv6),
		"NodeIPs":       o.joinedAddresses(nodeIPv4, nodeIPv6),
		"NodeIPv4":      nodeIPv4, "Gateway": gatewayIPv4,
	}
	maps.Copy(all, parameters)
	var text bytes.Buffer
	if err == nil {
		err = t.ExecuteTemplate(&text, file[strings.LastIndex(file, "/")+1:], all)
	}
	if err != nil {
		panic(err) // cannot happen: the templates belong to the program
	}
	return text.Bytes()
}

// featureGateList returns the value of a flag for the feature gates; empty if there are none.
func (o Options) featureGateList() string {
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, o.FeatureGates[name]))
	}
	return strings.Join(gates, ",")
}

// kubelet returns the configuration of a node's kubelet. statusFrequency is the interval at which
// the kubelet updates the status of the node.
func (o Options) kubelet(runtime, cgroupDriver, statusFrequency string) []byte {
	return o.render("kubelet.yaml", map[string]any{
		"RuntimeEndpoint": runtimeEndpoint(runtime), "CgroupDriver": cgroupDriver,
		"StatusFrequency": statusFrequency,
	})
}

// conflist returns the content of the file ConflistPath of a node with the subnets of the node's
// pods, one for each address family. The content has the form in which istio-cni writes the file,
// so that tests can compare it after migrations.
func (o Options) conflist(subnets ...string) []byte {
	var list any
	err := json.Unmarshal(o.render("conflist.json", map[string]any{"Subnets": subnets}), &list)
	content, indentErr := json.MarshalIndent(list, "", "  ")
	if err := cmp.Or(err, indentErr); err != nil {
		panic(err) // cannot happen: the template belongs to the program
	}
	return append(content, '\n')
}

// services returns the node's services in starting order. apiAddress is the address that the API
// server advertises.
func (o Options) services(apiAddress string) []machine.Service {
	return o.decodeServices("services.yaml", map[string]any{"APIAddress": apiAddress})
}

// decodeServices returns the services in a configuration.
func (o Options) decodeServices(file string, parameters map[string]any) []machine.Service {
	return embedded.Decode[[]machine.Service](o.render(file, parameters))
}
