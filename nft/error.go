package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/route"
)

// A KernelError is the kernel's refusal of a transaction: nothing of it was carried out.
type KernelError struct {
	// Message says what the refused message was to do, in nft's words: it names table, chain and
	// rule, or set and element.
	Message string
	// Errno is the kernel's answer, Text its extended explanation if it has one.
	Errno unix.Errno
	Text  string

	msg int // the type of the refused message, 0 if all of the transaction was
}

// Error says what was refused and why.
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

// advise says what an errno likely means for nf_tables.
func advise(errno unix.Errno) string {
	switch errno {
	case unix.EPERM:
		return "CAP_NET_ADMIN is needed in the user namespace that owns the network namespace, and no other process may own the table"
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT:
		return "the kernel lacks a feature: `rules doctor` names it"
	case unix.EMSGSIZE:
		return "the batch is larger than the socket's buffer may be: raise net.core.wmem_max, or run with CAP_NET_ADMIN in the initial" +
			" user namespace"
	}
	return ""
}

// IsNotPermitted reports whether the error comes from a lack of privilege.
func IsNotPermitted(err error) bool {
	// The kernel answers EACCES as well where a sysctl has disabled IPv6.
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) && !errors.Is(err, route.ErrNoIPv6)
}

// IsNotSupported reports whether the error comes from something that this kernel does not have.
func IsNotSupported(err error) bool {
	var unsupported *UnsupportedError
	return errors.As(err, &unsupported) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, unix.EAFNOSUPPORT)
}
