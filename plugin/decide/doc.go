// Package decide decides which pods are redirected, and with which parameters. [Early] decides from
// the information that the container runtime passes to a CNI plugin, and [Decide] from the pod and
// its namespace. Both return a [Decision] with a [Reason]. [WithNamespace] fetches the namespace if
// the decision depends on it. [Parameters] returns the [rules.Redirect] of a mesh pod, from which
// its rules are compiled. Names, precedence and defaults follow Istio's injector and istio-cni.
// Settings that the injector has written into the pod have an effect even where istio-cni ignores
// them.
//
//	d := decide.Decide(decide.Input{Attachment: a, Pod: pod}, &settings)
//	if d.Outcome == decide.Redirect {
//		redirect, notes, err := decide.Parameters(pod, addresses, &settings)
//		...
//	}
//
// With [Settings.Ambient] a pod may be in ambient mode instead. For such a pod, [Decide] returns
// [Ambient], and [AmbientParameters] returns the [rules.Ambient].
//
// The package is pure: apart from the function passed to [WithNamespace], it makes no system call
// and no request. Its own [Pod] type has the few fields that matter, and encoding/json fills it
// from the API server's answer. All functions are safe for concurrent use while their arguments are
// not changed.
package decide
