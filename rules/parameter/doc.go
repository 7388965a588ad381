// Package parameter is the catalog of the parameters of a redirection.
//
// [All] lists Istio's parameters for a sidecar, [Ambient] the parameters that only ambient mode
// has, and [SluiceOnly] the parameters that Istio does not have. A [Parameter] has a type, a
// default, a description and names. Istio's names are the flag and the environment variables of
// istio-iptables, the annotations of a pod and the field of a securityContext. Sluice's names are
// the flag of the rules command, the field in the CNI plugin's configuration, the environment
// variable of the node agent and the key in the chart's values. The parsers of these sources, their
// help and their manuals use the catalog.
//
// [Parameter.Set] parses a value as istio-iptables does. [Parameter.SetFromArgument] does so for an
// argument or a variable of a pod, where names of users cannot be resolved, and
// [Parameter.SetFromAnnotation] parses a value as the sidecar injector validates it. All of them
// store the value in [Values].
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
