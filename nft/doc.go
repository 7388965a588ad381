// Package nft programs a [rules.Ruleset] into nf_tables over netlink, and reads the kernel's
// state back into one. It starts no process.
//
//	rs, err := rules.Compile(redirect)
//	if err != nil {
//		return err
//	}
//	ns, err := netns.OpenPID(pid)
//	if err != nil {
//		return err
//	}
//	defer ns.Close()
//	result, err := nft.Apply(ns, rs)
//
// # Writing
//
// [Apply] makes a ruleset the content of the table inet sluice in a network namespace. It sends one
// batch of netlink messages, a [Transaction], which the kernel carries out as a whole or not at
// all, and writes nothing if the namespace holds the ruleset already. The [Outcome] of its [Result]
// says which of these it was. [Prepare] encodes a ruleset once for many namespaces. [Plan] returns
// the transaction that Apply would send, [Encode] the transaction of a first installation. [Remove]
// deletes the table and the policy routes that belong to it.
//
// # Reading
//
// [Read] returns our table and policy routes, [ReadAll] the tables of all owners. They decode
// complete dumps; an expression that the model has no word for becomes [rules.Unknown] and is
// never left out. [Hooks] lists the functions that the kernel calls at each hook, [FindIstio] the
// rules of Istio's own programs.
//
// # Errors
//
// A [KernelError] names the message that the kernel refused: its table, chain, rule or element.
// [IsNotSupported] and [IsNotPermitted] answer the two usual questions about an error, and
// [Probe] lists what the kernel supports.
//
// # google/nftables
//
// Rules are expressions of github.com/google/nftables/expr: one mapping from the model to them
// serves the encoder, the comparison of a dump with the ruleset, and [AddTo], which puts a
// ruleset into a transaction of a caller's own [github.com/google/nftables.Conn]. The messages
// are written and sent here, for these reasons:
//
//   - One acknowledgement for the batch, and the index of the refused message with it. Conn.Flush
//     makes the kernel echo each rule, and names only the type of the message that failed.
//   - Speed. Encoding a default ruleset takes the library 1,600 allocations, and 54 here. A first
//     installation with its bytes takes 1.5 times as long as sending ready-made bytes.
//   - Equality of bytes. Expressions are written in the order and with the defaults of the
//     kernel's dumps, so that an unchanged rule is recognised without decoding it.
//
// Defects of the library, found in v0.3.1-0.20251119083706-1db35da82052 and avoided here. For
// upstream:
//
//   - It writes no comments of tables (table.go).
//   - AddSet marks the keys of every anonymous, constant or interval set as big-endian, whatever
//     KeyByteOrder says (set.go): nft list prints user ids and interface names in them wrongly.
//   - Bitwise without NFTA_BITWISE_OP, Lookup without NFTA_LOOKUP_FLAGS and Ct with its
//     attributes in another order than the kernel's dumps make byte comparison impossible
//     (expr/bitwise.go, lookup.go, ct.go).
//   - TProxy does not unmarshal what it marshals (expr/tproxy.go), and Byteorder has no unmarshal
//     (expr/byteorder.go).
//   - userdata.Get panics on userdata that is shorter than its length byte says, such as
//     {7,200}. GetSets calls it, so that a set of a pod can crash a reader (userdata/userdata.go).
//   - GetSets fails for all sets of a table if one has an unknown key type, and elements lose
//     their expressions (set.go).
//   - Receive accepts messages of any sender. A process of the pod can send what looks like an
//     answer of the kernel (conn.go).
//   - Flush panics for a socket whose descriptor is 1024 or more: it waits with select(2).
//   - Tables, chains, sets and elements have no exported parser.
//
// # Concurrency
//
// All functions are safe for concurrent use, also by several processes in one namespace. A nil
// namespace is the calling thread's.
package nft
