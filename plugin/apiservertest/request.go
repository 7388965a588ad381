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
	// Watch is set if the request watches a collection.
	Watch  bool
	Header http.Header
}

// Kind returns the verb and the resource, as RBAC names them, such as "watch pods".
func (r *Request) Kind() string {
	// After the version, the path of an object consists of pairs of a resource and a name.
	_, rest, _ := strings.Cut(r.Path, "/v1/")
	elements := strings.Split(rest, "/")
	resource, isObject := elements[len(elements)-1], len(elements)%2 == 0
	switch {
	case len(elements) == 5: // a subresource of an object in a namespace
		resource, isObject = elements[2]+"/"+elements[4], true
	case isObject:
		resource = elements[len(elements)-2]
	}
	return verb(r, isObject) + " " + resource
}

// verb returns the verb of a request. isObject reports whether the path names one object instead of
// a collection.
func verb(r *Request, isObject bool) string {
	switch {
	case r.Method == http.MethodPost:
		return "create"
	case r.Method != http.MethodGet:
		return strings.ToLower(r.Method)
	case r.Watch:
		return "watch"
	case isObject:
		return "get"
	}
	return "list"
}
