package apiservertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"time"
)

// certificates contains a certificate authority and the certificates that it signed.
type certificates struct {
	pem                    []byte
	pool                   *x509.CertPool
	server                 tls.Certificate
	clientPEM, clientKey   []byte
	expiredPEM, expiredKey []byte
}

// authority signs the certificates of all servers of a process until RotateAuthority.
// otherAuthority signs the certificate of no server.
var authority, otherAuthority = sync.OnceValue(newCertificates), sync.OnceValue(newCertificates)

// CA returns the certificate of the authority that signed the server's certificate, in PEM.
func (s *Server) CA() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.authority.pem
}

// OtherCA returns the certificate of another authority, in PEM.
func OtherCA() []byte { return otherAuthority().pem }

// ClientCertificate returns a certificate that is accepted in place of a token, and its key, in
// PEM.
func (s *Server) ClientCertificate() (certificate, key []byte) {
	return authority().clientPEM, authority().clientKey
}

// ExpiredCertificate returns a client certificate that expired at the end of 1999, and its key, in
// PEM.
func (s *Server) ExpiredCertificate() (certificate, key []byte) {
	return authority().expiredPEM, authority().expiredKey
}

// newCertificates creates an authority and its certificates.
func newCertificates() *certificates {
	// The virtual time of testing/synctest begins with the year 2000.
	from, to := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "apiservertest"},
		NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey()
	c := &certificates{pem: encode("CERTIFICATE", sign(ca, ca, key, key)), pool: x509.NewCertPool()}
	c.pool.AppendCertsFromPEM(c.pem)
	leaf := func(name string, to time.Time, usage x509.ExtKeyUsage) (certificate, leafKey []byte) {
		k := newKey()
		template := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: from,
			NotAfter:    to,
			ExtKeyUsage: []x509.ExtKeyUsage{usage}, KeyUsage: x509.KeyUsageDigitalSignature,
		}
		if usage == x509.ExtKeyUsageServerAuth {
			template.DNSNames = []string{"localhost", memoryName}
			template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
		}
		der, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			panic(err)
		}
		return encode("CERTIFICATE", sign(template, ca, k, key)), encode("PRIVATE KEY", der)
	}
	serverPEM, serverKey := leaf("kube-apiserver", to, x509.ExtKeyUsageServerAuth)
	pair, err := tls.X509KeyPair(serverPEM, serverKey)
	if err != nil {
		panic(err)
	}
	c.server = pair
	c.clientPEM, c.clientKey = leaf("system:node:test", to, x509.ExtKeyUsageClientAuth)
	c.expiredPEM, c.expiredKey = leaf("system:node:test",
		time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC), x509.ExtKeyUsageClientAuth)
	return c
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

// sign returns a certificate, in DER, that the key of the parent has signed.
func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		panic(err)
	}
	return der
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
