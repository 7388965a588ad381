// Package podcache caches the node's pods, and namespaces, as far as decisions about pods need
// them.
//
// A watch of the node's pods, and one of namespaces after the first request for one, keep the cache
// up to date. Objects that are not in the cache, such as a newly created pod, are requested from
// the API server. So are pods whose relevant part is larger than 32 KiB, which limits the cache
// whatever users write into their pods.
//
// A pod is stored as the JSON of a [decide.Pod], in one block of memory without pointers, which is
// the answer to the plugin. Its [PodStatus] is stored separately, for the agent. 250 injected pods
// take 1.0 MiB, and 1,000 take 3.8 MiB (BenchmarkMemory).
package podcache
