package source

import "errors"

// A Kind classifies an error. It is a stable word for logs and metrics.
type Kind string

// The kinds of errors. NotFound and Replaced are answers about the pod or the namespace. The others
// mean that a source could not answer.
const (
	// NotFound: there is no pod, or no namespace, with the name.
	NotFound Kind = "not-found"
	// Replaced: the pod with the name had another UID, and still had it when the time was up.
	Replaced Kind = "replaced"
	// Unauthorized: the credentials are wrong or have expired.
	Unauthorized Kind = "unauthorized"
	// Forbidden: the credentials do not permit the request.
	Forbidden Kind = "forbidden"
	// Misconfigured: no request can be sent because of the configuration. For example, the
	// kubeconfig does not exist, or its authority has not signed the server's certificate.
	Misconfigured Kind = "misconfigured"
	// Unavailable: the source was not reached, or its answer was late or invalid.
	Unavailable Kind = "unavailable"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{NotFound, Replaced, Unauthorized, Forbidden, Misconfigured, Unavailable}
}

// kindError gives an error a kind.
type kindError struct {
	kind Kind
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

// WithKind returns an error with the same text and the kind, which [KindOf] returns even if the
// error is wrapped.
func WithKind(kind Kind, err error) error { return &kindError{kind, err} }

// KindOf returns the kind of a source's error: [Unavailable] for an error without a kind, and ""
// for nil.
func KindOf(err error) Kind {
	var e *kindError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.kind
	default:
		return Unavailable
	}
}

// IsNotFound reports whether there is no such pod or namespace.
func IsNotFound(err error) bool { return KindOf(err) == NotFound }

// IsReplaced reports whether another pod has the name now.
func IsReplaced(err error) bool { return KindOf(err) == Replaced }

// IsRefused reports whether the credentials are wrong or not sufficient.
func IsRefused(err error) bool {
	kind := KindOf(err)
	return kind == Unauthorized || kind == Forbidden
}

// IsMisconfigured reports whether the configuration must be changed before the source can be used.
func IsMisconfigured(err error) bool { return KindOf(err) == Misconfigured }

// IsUnavailable reports whether the source was not reached or gave no valid answer. A later request
// may succeed without a change of the configuration.
func IsUnavailable(err error) bool { return KindOf(err) == Unavailable }
