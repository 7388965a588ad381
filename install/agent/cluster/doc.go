// Package cluster contains the node agent's requests to the API server about its DaemonSet, its
// node and its pods, and its events.
//
// It sends JSON with package apiclient. Its types contain only the required fields: linking only
// the packages core/v1 and apps/v1 of k8s.io/api would make the agent's program 17 % larger. It
// does not use [rest.Request], which reads replies of any size, and for whose errors
// [apierrors.IsNotFound] is also true after a reply 404 of a load balancer. The caller's context
// limits all requests except later updates of events, which have their own time limit.
//
// [rest.Request]: https://pkg.go.dev/k8s.io/client-go/rest#Request
// [apierrors.IsNotFound]: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/errors#IsNotFound
package cluster
