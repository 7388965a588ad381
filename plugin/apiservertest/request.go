package apiservertest

import (
	"net/http"
	"strings"
	"time"
)

// A Request is a request that the server has received over TLS.
type Request struct {
	Time         time.Time
	Method, Path string
	// Watch reports that it is a request to watch a collection.
	Watch  bool
	Header http.Header
}

// Kind returns the verb and the resource, as RBAC names them: "watch pods".
func (r *Request) Kind() string {
	// After the version, an object has pairs of a resource and a name.
	_, rest, _ := strings.Cut(r.Path, "/v1/")
	parts := strings.Split(rest, "/")
	resource, object := parts[len(parts)-1], len(parts)%2 == 0
	switch {
	case resource == "token":
		resource = "serviceaccounts/token"
	case object:
		resource = parts[len(parts)-2]
	}
	return verb(r, object) + " " + resource
}

// verb returns the verb of a request for one object, or else for a collection.
func verb(r *Request, object bool) string {
	switch {
	case r.Method == http.MethodPost:
		return "create"
	case r.Method != http.MethodGet:
		return strings.ToLower(r.Method)
	case r.Watch:
		return "watch"
	case object:
		return "get"
	}
	return "list"
}
