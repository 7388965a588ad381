package parameter

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// Values are the values of all parameters.
type Values struct {
	Redirect rules.Redirect
	// EnvoyUser is the name of the proxy's user. It is ignored if user ids are given.
	EnvoyUser string
	// DualStack reports whether any IPv6 address of the pod causes the capture of IPv6. If it is
	// false, IPv6 is captured only if the pod has no IPv4 address.
	DualStack bool
	// StatusPort is the status port of the sidecar's agent in the annotation of a pod, or 0.
	StatusPort uint16
	// PodIPs are the addresses of the pod. They decide whether IPv6 is captured.
	PodIPs []netip.Addr
	// Backend is the name of the backend that applies the rules.
	Backend string
	// StrictIstio reports whether all deviations are disabled, instead of only Redirect.Without.
	StrictIstio bool
	// AmbientMode reports whether the redirection is for ambient mode, to ztunnel.
	AmbientMode bool
	// Ambient contains the parameters that only ambient mode has: see AmbientRedirect.
	Ambient rules.Ambient
}

// Defaults returns the values of istio-iptables without flags and variables. The ids of the proxy
// are empty: [Values.IdentifyProxy] sets them.
func Defaults() Values {
	v := Values{
		Redirect: rules.DefaultRedirect(), EnvoyUser: "istio-proxy", Backend: "auto",
		Ambient: rules.DefaultAmbient(),
	}
	v.Redirect.ProxyUIDs, v.Redirect.ProxyGIDs = nil, nil
	return v
}

// IdentifyProxy sets missing ids of the proxy as istio-iptables does. If there are no users, it
// sets the id of EnvoyUser, or 1337 if there is no such user. If there are no groups, it sets the
// ids of the users.
func (v *Values) IdentifyProxy(users rules.Lookup) {
	r := &v.Redirect
	if len(r.ProxyUIDs) == 0 {
		id := uint32(rules.DefaultProxyID)
		if users != nil {
			if found, err := users(v.EnvoyUser); err == nil {
				id = found
			}
		}
		r.ProxyUIDs = rules.Singles(id)
	}
	if len(r.ProxyGIDs) == 0 {
		r.ProxyGIDs = r.ProxyUIDs
	}
}

// AmbientRedirect returns the parameters of ambient mode: the field Ambient, and the fields of
// Redirect that also have an effect in ambient mode.
func (v *Values) AmbientRedirect() rules.Ambient {
	a := v.Ambient
	a.RerouteInterfaces = v.Redirect.RerouteInterfaces
	a.Counters, a.Without = v.Redirect.Counters, v.Redirect.Without
	return a
}
