// Package parameter is the catalogue of the parameters that shape a redirection.
//
// [All] lists those of Istio for a sidecar, [Ambient] those for ambient mode and [SluiceOnly] those
// of Sluice. A [Parameter] has the names of Istio: the flag and the environment variables of
// istio-iptables, the annotations of a pod and the field of a securityContext, with the type of the
// value, its default and a description. The command rules derives its flags, its environment and
// its help from the catalogue, and the CNI plugin its reading of a pod. A parameter of Sluice has
// the names of the command's flag, of the field in the plugin's configuration, of the node agent's
// environment variable and of the key in the chart's values; the readers of all four and their
// manuals derive name, type, default and allowed values.
//
// [Parameter.Set] parses a value as istio-iptables does, and [Parameter.SetOfPod] as the sidecar
// injector validates it. Both store it in [Values].
//
// [Invocation.Redirect] turns a command line and an environment of istio-iptables into a
// [rules.Redirect]:
//
//	redirect, err := parameter.Invocation{
//		Args:      os.Args[1:],
//		Variable:  os.LookupEnv,
//		Addresses: addresses,
//	}.Redirect()
//
// Names, letters, variables, annotations and defaults are from istio.io/istio
// tools/istio-iptables/pkg/cmd/root.go, tools/common/config/config.go and
// cni/pkg/plugin/sidecar_redirect.go at v0.0.0-20260827124520-eed52ebb66ad.
//
// The package makes no system call. Its functions are safe for concurrent use.
package parameter
