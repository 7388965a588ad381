package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// certificateType is the type of certificates in PEM.
const certificateType = "CERTIFICATE"

// An authority is the cluster's certificate authority. Its own certificate and the certificates
// that it issues are valid for a day.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// A keyPair is a certificate and its key in PEM.
type keyPair struct{ certificate, key []byte }

// newAuthority creates a certificate authority with a new key.
func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := certificateTemplate("kubernetes")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true,
		x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate authority: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("create the certificate authority: %w", err)
	}
	return &authority{certificate: parsed, key: key, pem: encodePEM(certificateType, der)}, nil
}

// newKey creates a private key.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	return key, nil
}

// certificateTemplate returns a template of a certificate. NotBefore is only a minute ago, which
// suffices because all programs of the cluster use this machine's clock.
func certificateTemplate(name string, groups ...string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-time.Minute), NotAfter: now.Add(24 * time.Hour),
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
	encoded, err := encodeKey(key)
	return keyPair{encodePEM(certificateType, der), encoded}, err
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

// encodeKey encodes a private key in PEM.
func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return encodePEM("PRIVATE KEY", der), nil
}

// encodePEM encodes a DER value as a PEM block.
func encodePEM(blockType string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}
