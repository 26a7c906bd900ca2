// Package securetest makes certificates for tests, without any tool but Go.
package securetest

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
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates. Its own is in File.
type CA struct {
	File string // PEM
	Pool *x509.CertPool

	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a CA of its own name in a directory of the test's.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	c := &CA{t: t, dir: t.TempDir()}
	tpl := template(name)
	tpl.IsCA, tpl.BasicConstraintsValid, tpl.KeyUsage = true, true, x509.KeyUsageCertSign
	c.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &c.key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	c.Pool = x509.NewCertPool()
	c.Pool.AddCert(c.cert)
	c.File = filepath.Join(c.dir, name+"-ca.pem")
	writePEM(t, c.File, "CERTIFICATE", der)
	return c
}

// Pair is a certificate with its key, in files.
type Pair struct {
	Certificate, Key string // PEM files
	TLS              tls.Certificate
}

// Issue signs a certificate for 127.0.0.1, ::1, localhost and name, good for servers and clients.
func (c *CA) Issue(name string) Pair {
	c.t.Helper()
	tpl := template(name)
	tpl.KeyUsage = x509.KeyUsageDigitalSignature
	tpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	tpl.DNSNames = []string{"localhost", name}
	tpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	key := newKey(c.t)
	der, err := x509.CreateCertificate(rand.Reader, tpl, c.cert, &key.PublicKey, c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	p := Pair{Certificate: filepath.Join(c.dir, name+".pem"), Key: filepath.Join(c.dir, name+".key")}
	writePEM(c.t, p.Certificate, "CERTIFICATE", der)
	writePEM(c.t, p.Key, "PRIVATE KEY", keyDER)
	if p.TLS, err = tls.LoadX509KeyPair(p.Certificate, p.Key); err != nil {
		c.t.Fatal(err)
	}
	return p
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system has no random numbers
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
