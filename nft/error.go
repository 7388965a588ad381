package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/route"
)

// A KernelError is the error of a transaction or request that the kernel rejected. Nothing of the
// transaction was executed.
type KernelError struct {
	// Message is the operation that the kernel rejected, such as "add rule" or "get table". For a
	// message of a transaction it is in nft's syntax. It names the table and, depending on the
	// message, the chain, the rule, the set or the element.
	Message string
	// Errno is the kernel's error, and Text its extended explanation, if any.
	Errno unix.Errno
	Text  string

	// msg is the type of the rejected message of a transaction. It is 0, which is also the value of
	// NFT_MSG_NEWTABLE, if the kernel rejected a whole transaction or a request.
	msg int
}

// Error returns the rejected operation, the kernel's error, and advice for some errors.
func (e *KernelError) Error() string {
	text := fmt.Sprintf("the kernel refuses to %s: %s", e.Message, e.Errno.Error())
	if e.Text != "" {
		text += " (" + e.Text + ")"
	}
	if advice := advise(e.Errno); advice != "" {
		text += "; " + advice
	}
	return text
}

// Unwrap returns the errno.
func (e *KernelError) Unwrap() error { return e.Errno }

// IsMissingExpression reports whether the kernel does not find an expression or a chain type, for
// example because a module is missing. This is the error ENOENT for a message that adds a chain or
// a rule: the transactions of this package create all other objects that these messages name.
func (e *KernelError) IsMissingExpression() bool {
	return e.Errno == unix.ENOENT &&
		(e.msg == unix.NFT_MSG_NEWCHAIN || e.msg == unix.NFT_MSG_NEWRULE)
}

// advise returns the likely cause of an nf_tables errno, and the next step.
func advise(errno unix.Errno) string {
	switch errno {
	case unix.EPERM:
		return "the process needs CAP_NET_ADMIN in the user namespace that owns the network namespace," +
			" and the table must not have the owner flag of another process"
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT:
		return "the kernel lacks a feature: run `rules doctor` to find out which"
	case unix.EMSGSIZE:
		return "the batch is larger than the maximum send buffer: raise net.core.wmem_max," +
			" or run with CAP_NET_ADMIN in the initial user namespace"
	}
	return ""
}

// IsNotPermitted reports whether the error is caused by a missing privilege.
func IsNotPermitted(err error) bool {
	// The kernel also returns EACCES if a sysctl disables IPv6.
	return errors.Is(err, unix.EPERM) ||
		errors.Is(err, unix.EACCES) && !errors.Is(err, route.ErrNoIPv6)
}

// IsNotSupported reports whether the error is caused by a missing feature of the kernel.
func IsNotSupported(err error) bool {
	var unsupported *UnsupportedError
	return errors.As(err, &unsupported) || errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, unix.EAFNOSUPPORT)
}
