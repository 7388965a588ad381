// Package netns runs functions inside network namespaces. It stands on the handles of
// github.com/vishvananda/netns and never leaves a thread of the process in the wrong namespace.
//
// An [NS] is an open namespace. [Open], [OpenPID] and [FromHandle] open one that exists by its
// file, by a process and by a handle or descriptor; [New] makes one. [NS.Do] runs a function
// inside, [NS.ID] is the identity of the namespace, and [NS.Lock] serialises changes that take
// several steps. A nil *NS is the namespace of the calling thread, so that a caller needs no
// special case for it.
//
//	ns, err := netns.Open("/run/netns/pod")
//	if err != nil {
//		return err
//	}
//	defer ns.Close()
//	return ns.Do(func() error {
//		l, err := net.Listen("tcp", "127.0.0.1:15001") // belongs to the namespace
//		...
//	})
//
// # What is added to the library
//
// The library opens, enters and closes descriptors. These are left to its callers, and done here:
//
//   - Threads. A namespace belongs to a thread, and the Go scheduler moves goroutines between
//     threads. Do locks the thread, enters, runs the function and returns. A thread that cannot
//     return is ended and never runs another goroutine. The main thread, which cannot be ended,
//     is never used. A panic and [runtime.Goexit] in the function reach the caller of Do.
//   - Identity. [ID] is comparable and stays known after Close. NsHandle.Equal asks the kernel
//     about two open descriptors, and finds equal two that are both closed.
//   - Concurrency. Close waits for an entry in progress, so that setns never meets the number of
//     a closed descriptor that already belongs to another file.
//   - Type. A file that is no network namespace is an error of Open, with the type of namespace
//     that it is. setns reports EINVAL, and only when it is entered.
//   - Errors say which privilege is missing, and whether a process has ended.
//
// # Defects of the library
//
// Found in v0.0.5, and avoided here. For upstream:
//
//   - GetFromPath opens without O_NONBLOCK: a FIFO in the place of the file blocks it for ever.
//   - Get, and New with it, open /proc/PID/task/TID/ns/net with the process id of the caller's
//     PID namespace. Where /proc is that of another PID namespace this is another process's file.
//     /proc/thread-self/ns/net is right in both cases.
//   - NsHandle.Close keeps the number if close(2) fails, which has released it all the same.
package netns
