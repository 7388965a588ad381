package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// An authority is the cluster's certificate authority. The certificates that it issues are valid
// for a day.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte // the certificate
}

// A keyPair is a certificate and its key in PEM.
type keyPair struct{ certificate, key []byte }

// newAuthority creates a certificate authority with a new key.
func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{
		CommonName: "kubernetes", NotBefore: notBefore(),
	}, key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate authority: %w", err)
	}
	encoded, err := cert.EncodeCertificates(certificate)
	return &authority{certificate: certificate, key: key, pem: encoded}, err
}

// notBefore returns the start of the validity of a certificate. It is only a minute ago, which
// suffices because all programs of the cluster use this machine's clock.
func notBefore() time.Time { return time.Now().Add(-time.Minute) }

// newKey creates a private key.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	return key, nil
}

// certificateTemplate returns a template of a certificate.
func certificateTemplate(name string, groups ...string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    notBefore(), NotAfter: now.Add(24 * time.Hour),
	}
}

// issueClient issues a client certificate for a user with groups.
func (a *authority) issueClient(name string, groups ...string) (keyPair, error) {
	template := certificateTemplate(name, groups...)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// issueServer issues a server certificate for DNS names and addresses.
func (a *authority) issueServer(name string, names []string, addresses []net.IP) (keyPair, error) {
	template := certificateTemplate(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = names, addresses
	return a.issue(template)
}

// issue creates a key and signs a certificate for the key. It sets the KeyUsage of the template.
func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	key, err := newKey()
	if err != nil {
		return keyPair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName,
			err)
	}
	encodedKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return keyPair{}, err
	}
	encoded, err := cert.EncodeCertificates(&x509.Certificate{Raw: der})
	return keyPair{encoded, encodedKey}, err
}

// kubeconfig returns a kubeconfig for the API server at the URL server, with the client
// certificate.
func (a *authority) kubeconfig(server string, client keyPair) ([]byte, error) {
	const name = "e2e"
	c := api.NewConfig()
	c.Clusters[name] = &api.Cluster{Server: server, CertificateAuthorityData: a.pem}
	c.AuthInfos[name] = &api.AuthInfo{
		ClientCertificateData: client.certificate, ClientKeyData: client.key,
	}
	c.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return clientcmd.Write(*c)
}
