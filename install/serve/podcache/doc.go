// Package podcache keeps a copy of what the API server says of this node's pods, and of namespaces,
// as far as decisions about pods need it.
//
// One watch for the pods of the node, and one for namespaces once somebody has asked for one, keep
// the copy up to date. What it does not have, such as a pod that was just made, is fetched. So is a
// pod whose part that counts has more than 32 KiB: what is kept is bounded whatever users write
// into their pods.
//
// A pod is kept as the JSON of a [decide.Pod], in one piece of memory without pointers, which is
// the answer to the plugin as it is. Besides it is how far the pod has come ([PodStatus]), for the
// agent alone. 250 injected pods take 1.0 MiB, and 1,000 take 3.8 MiB (BenchmarkMemory).
package podcache
