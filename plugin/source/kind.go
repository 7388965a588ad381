package source

import "errors"

// A Kind says what an error means for the pod, in a stable word for logs and metrics.
type Kind string

// The kinds of errors. NotFound and Replaced are answers about the pod; the others say that a source could not answer.
const (
	// NotFound: there is no pod, or no namespace, of that name.
	NotFound Kind = "not-found"
	// Replaced: there is a pod of that name, but it has another UID, and stayed another one as long as it was asked for.
	Replaced Kind = "replaced"
	// Unauthorized: the source does not know who is asking; the credentials are wrong, or have expired.
	Unauthorized Kind = "unauthorized"
	// Forbidden: the source knows who is asking, and will not tell.
	Forbidden Kind = "forbidden"
	// Misconfigured: the source cannot be asked by what is configured, such as a kubeconfig that is not there.
	Misconfigured Kind = "misconfigured"
	// Unavailable: the source was not reached, gave no answer in time, or none that makes sense.
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

// WithKind gives an error a kind, which [KindOf] finds again however the result is wrapped. The text stays the same.
func WithKind(kind Kind, err error) error { return &kindError{kind, err} }

// KindOf returns the kind of a source's error: [Unavailable] for an error that nobody gave a kind, and "" for nil.
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

// IsNotFound tells whether the error says that there is no such pod or namespace.
func IsNotFound(err error) bool { return KindOf(err) == NotFound }

// IsReplaced tells whether the error says that another pod has the name now.
func IsReplaced(err error) bool { return KindOf(err) == Replaced }

// IsRefused tells whether the error says that the credentials are wrong or not sufficient.
func IsRefused(err error) bool {
	kind := KindOf(err)
	return kind == Unauthorized || kind == Forbidden
}

// IsMisconfigured tells whether the error says that the configuration must be changed before the source can be asked.
func IsMisconfigured(err error) bool { return KindOf(err) == Misconfigured }

// IsUnavailable tells whether the error says that the source could not answer, and may be able to later.
func IsUnavailable(err error) bool { return KindOf(err) == Unavailable }
