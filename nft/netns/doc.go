// Package netns runs functions inside network namespaces. It uses the handles of
// github.com/vishvananda/netns and never leaves a thread of the process in the wrong namespace.
//
// An [NS] is an open namespace. [Open], [OpenPID] and [FromHandle] open an existing namespace by
// its file, by a process, and by a handle or descriptor. [New] creates a namespace. [NS.Do] runs a
// function inside, [NS.ID] returns the identity of the namespace, and [NS.Lock] serializes changes
// that take several steps. A nil *NS is the namespace of the calling thread.
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
// # Additions to the library
//
// The library opens, enters and closes descriptors. This package adds:
//
//   - Threads. Each thread is in one namespace, and the Go scheduler moves goroutines between
//     threads. Do locks a thread, enters the namespace, runs the function and restores the
//     original namespace. A thread whose namespace cannot be restored is terminated and never runs
//     another goroutine. The main thread never enters a namespace, because it cannot be
//     terminated. A panic and [runtime.Goexit] in the function propagate to the caller of Do.
//   - Identity. [ID] is comparable and remains valid after Close. NsHandle.Equal needs two open
//     descriptors and reports two closed ones as equal.
//   - Concurrency. Close waits until a concurrent Do has entered the namespace. Otherwise setns
//     could use the number of a closed descriptor that already belongs to another file.
//   - Type. Open rejects a file that is not a network namespace and names the file's namespace
//     type. With the library, setns returns EINVAL when the namespace is entered.
//   - Errors. An error names the missing privilege, or reports that the process has ended.
//
// # Defects of the library
//
// This package avoids these defects of the library, which were found in v0.0.5. The list is for the
// maintainers of the library:
//
//   - GetFromPath opens without O_NONBLOCK: a FIFO at the path blocks it forever.
//   - Get and New open /proc/PID/task/TID/ns/net with the process id in the caller's PID
//     namespace. If /proc belongs to another PID namespace, this file belongs to another process.
//     /proc/thread-self/ns/net is correct regardless of the PID namespace of /proc.
//   - NsHandle.Close keeps the descriptor's number if close(2) fails, although close(2) has
//     released the descriptor.
package netns
