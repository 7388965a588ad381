// Package podcache caches the parts of the node's pods and of namespaces that decisions about pods
// need.
//
// A watch of the node's pods keeps the cache up to date. The first request for a namespace starts
// another watch, of all namespaces. Objects that are not in the cache, such as a newly created pod,
// are requested from the API server. The cache keeps such pods until the watch reports them or a
// new list arrives. To limit the memory, the JSON of a pod is not cached if the part that decisions
// need is larger than 32 KiB; such a pod is requested each time.
//
// A pod is stored as the JSON of a [decide.Pod], in one block of memory without pointers. This JSON
// is sent to the plugin unchanged. The pod's [PodStatus] is stored separately, for the agent. 250
// injected pods take 1.0 MiB, and 1,000 take 3.8 MiB (BenchmarkMemory).
package podcache
