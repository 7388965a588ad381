package source

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// kubeconfig contains the used fields of a kubeconfig file
// (k8s.io/client-go/tools/clientcmd/api/v1).
type kubeconfig struct {
	CurrentContext string  `json:"current-context"`
	Clusters       []entry `json:"clusters"`
	Contexts       []entry `json:"contexts"`
	Users          []entry `json:"users"`
}

// An entry is a named cluster, context or user. Only the field of its list is set.
type entry struct {
	Name    string  `json:"name"`
	Cluster cluster `json:"cluster"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
	User authInfo `json:"user"`
}

// find returns the first entry with the name, or nil.
func find(entries []entry, name string) *entry {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &entries[i]
}

// cluster contains the address of the API server, and the parameters to authenticate the server.
type cluster struct {
	Server                   string `json:"server"`
	TLSServerName            string `json:"tls-server-name"`
	InsecureSkipTLSVerify    bool   `json:"insecure-skip-tls-verify"`
	CertificateAuthority     string `json:"certificate-authority"`
	CertificateAuthorityData []byte `json:"certificate-authority-data"`
	ProxyURL                 string `json:"proxy-url"`
}

// authInfo contains the credentials of a user.
type authInfo struct {
	ClientCertificate     string          `json:"client-certificate"`
	ClientCertificateData []byte          `json:"client-certificate-data"`
	ClientKey             string          `json:"client-key"`
	ClientKeyData         []byte          `json:"client-key-data"`
	Token                 string          `json:"token"`
	TokenFile             string          `json:"tokenFile"`
	Impersonate           string          `json:"as"`
	ImpersonateUID        string          `json:"as-uid"`
	ImpersonateGroups     []string        `json:"as-groups"`
	Username              string          `json:"username"`
	Password              string          `json:"password"`
	AuthProvider          json.RawMessage `json:"auth-provider"`
	Exec                  json.RawMessage `json:"exec"`
}

// parseKubeconfig returns the cluster and the user of the current context. The file contains
// secrets. Therefore errors quote only the names of contexts, clusters, users and fields.
func parseKubeconfig(text []byte) (cluster, authInfo, error) {
	var k kubeconfig
	// The node agent writes JSON. JSON is valid YAML, but the YAML parser takes four times as long
	// as the JSON parser. A JSON file that the JSON parser refuses may still be valid as YAML,
	// because the YAML parser accepts a number for a string.
	if json.Unmarshal(text, &k) != nil {
		k = kubeconfig{}
		if err := yaml.Unmarshal(text, &k); err != nil {
			return cluster{}, authInfo{}, withoutSecrets(err)
		}
	}
	if k.CurrentContext == "" {
		return cluster{}, authInfo{}, errors.New("it has no current-context")
	}
	current := find(k.Contexts, k.CurrentContext)
	if current == nil {
		return cluster{}, authInfo{}, fmt.Errorf("its current-context %q is not among its contexts",
			k.CurrentContext)
	}
	c := find(k.Clusters, current.Context.Cluster)
	if c == nil {
		return cluster{}, authInfo{}, fmt.Errorf(
			"it has no cluster %q, which its current-context names", current.Context.Cluster)
	}
	u := find(k.Users, current.Context.User)
	if u == nil {
		return cluster{}, authInfo{}, fmt.Errorf(
			"it has no user %q, which its current-context names", current.Context.User)
	}
	return c.Cluster, u.User, nil
}

// withoutSecrets describes an error of a parser by location and type only. The text of the error
// may quote the file.
func withoutSecrets(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		found, _, _ := strings.Cut(wrong.Value, " ")
		field := cmp.Or(wrong.Field, "the file")
		return fmt.Errorf("it is not a kubeconfig: the type of %s is %s", field, found)
	}
	// As a package variable the expression would be compiled at every start of the program.
	if position := regexp.MustCompile(`line \d+`).FindString(err.Error()); position != "" {
		return fmt.Errorf("it is not a kubeconfig: %s is not YAML", position)
	}
	return errors.New("it is not a kubeconfig: it is not YAML, or contains data that is not base64")
}

// endpoint returns the URL of the API server. Its scheme must be https, because the pod determines
// the redirection and must not be changed in transit.
func (c *cluster) endpoint() (*url.URL, error) {
	server, err := url.Parse(c.Server)
	switch {
	case err != nil:
		// The error would quote the URL, which may contain a password.
		return nil, errors.New("its cluster's server is not a URL")
	case server.User != nil:
		return nil, errors.New(
			"its cluster's server has a user in its URL: move it to users")
	case server.Scheme != "https" || server.Host == "":
		// Omit path and query, which may contain a secret.
		shown := url.URL{Scheme: server.Scheme, Host: server.Host}
		return nil, fmt.Errorf("its cluster's server %q is not an https URL", shown.String())
	}
	return &url.URL{Scheme: server.Scheme, Host: server.Host, Path: cmp.Or(server.Path, "/")}, nil
}

// proxy returns the URL of the proxy for the API server, or nil.
func (c *cluster) proxy() (*url.URL, error) {
	if c.ProxyURL == "" {
		return nil, nil
	}
	proxy, err := url.Parse(c.ProxyURL)
	if err != nil || proxy.Host == "" ||
		!slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) {
		return nil, errors.New("its cluster's proxy-url is not an http, https or socks5 URL")
	}
	return proxy, nil
}

// supportedCredentials is advice for errors about unsupported credentials.
const supportedCredentials = "give it a token, a tokenFile or a client certificate"

// checkSupported returns an error for credentials that are not supported. Ignoring them would send
// requests as another user.
func (u *authInfo) checkSupported() error {
	isPresent := func(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
	switch {
	case isPresent(u.Exec):
		return errors.New("its user has an exec plugin, which the plugin does not execute: " +
			supportedCredentials)
	case isPresent(u.AuthProvider):
		return errors.New("its user has an auth-provider, which is not supported: " +
			supportedCredentials)
	case u.Username != "" || u.Password != "":
		return errors.New("its user has a password, which Kubernetes 1.19 removed: " +
			supportedCredentials)
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0:
		return errors.New("its user impersonates another user (as, as-uid, as-groups): use the" +
			" credentials of that user")
	}
	return nil
}
