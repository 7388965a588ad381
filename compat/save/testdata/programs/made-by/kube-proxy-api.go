// Command api answers kube-proxy's list and watch requests with the objects of a file. The objects
// never change.
//
//	api -listen 127.0.0.1:8001 objects.json
//
// The file is a Kubernetes List in JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"path"
)

// An object is a Kubernetes object.
type object map[string]any

func main() {
	listen := flag.String("listen", "127.0.0.1:8001", "the address to listen on")
	flag.Parse()
	data, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	var all struct{ Items []object }
	if err := json.Unmarshal(data, &all); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*listen, handler(all.Items)))
}

// kinds maps the last part of a request's path to the kind of the requested objects.
var kinds = map[string]string{
	"nodes": "Node", "services": "Service", "endpointslices": "EndpointSlice", "servicecidrs": "ServiceCIDR",
}

// handler answers a list request for a kind with all objects of this kind, a watch request with the
// same objects if the client asks for the initial events, and any other request with the status
// 404.
func handler(objects []object) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		log.Print(r.Method, " ", r.URL)
		w.Header().Set("Content-Type", "application/json")
		kind := kinds[path.Base(r.URL.Path)]
		if r.Method != http.MethodGet || kind == "" {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintln(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
			return
		}
		var found []object
		version := "v1"
		for _, o := range objects {
			if o["kind"] == kind {
				found = append(found, o)
				version = o["apiVersion"].(string)
			}
		}
		out := json.NewEncoder(w)
		if !r.URL.Query().Has("watch") {
			_ = out.Encode(object{
				"kind": kind + "List", "apiVersion": version, "metadata": object{"resourceVersion": "1"}, "items": found,
			})
			return
		}
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			for _, o := range found {
				_ = out.Encode(object{"type": "ADDED", "object": o})
			}
			_ = out.Encode(object{"type": "BOOKMARK", "object": object{
				"kind": kind, "apiVersion": version,
				"metadata": object{"resourceVersion": "1", "annotations": object{"k8s.io/initial-events-end": "true"}},
			}})
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}
