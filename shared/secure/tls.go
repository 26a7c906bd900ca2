package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
)

// readPool reads PEM certificates.
func readPool(f File) (*x509.CertPool, error) {
	pem, err := f.read()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: %s holds no PEM certificate", f.Setting, f.Path)
	}
	return pool, nil
}

// readPair reads a certificate, with its chain, and its key.
func readPair(certificate, key File) (*tls.Certificate, error) {
	switch {
	case certificate.Path == "":
		return nil, fmt.Errorf("%s: give the certificate too, as %s", key.Setting, certificate.Setting)
	case key.Path == "":
		return nil, fmt.Errorf("%s: give its private key too, as %s", certificate.Setting, key.Setting)
	}
	c, err := certificate.read()
	if err != nil {
		return nil, err
	}
	k, err := key.read()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		return nil, fmt.Errorf("%s (%s) with %s (%s): %w", certificate.Setting, certificate.Path, key.Setting, key.Path, err)
	}
	return &pair, nil
}

// ServerFiles are the TLS files of a server.
type ServerFiles struct {
	Certificate, Key File // PEM, the certificate first and its chain behind it
	ClientCA         File // certificates of clients are checked against these; "" for none
}

// ServerTLS makes a server's settings: TLS 1.2 or newer. The files are read again for the next connection after they have changed. With a
// client CA a client may show a certificate, which must then be valid; whether it has to is for the handler to say (VerifiedClient).
func ServerTLS(f ServerFiles, warn func(error)) (*tls.Config, error) {
	load := func() (*tls.Config, error) {
		pair, err := readPair(f.Certificate, f.Key)
		if err != nil {
			return nil, err
		}
		c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair}, NextProtos: []string{"h2", "http/1.1"}}
		if f.ClientCA.Path != "" {
			if c.ClientCAs, err = readPool(f.ClientCA); err != nil {
				return nil, err
			}
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
		return c, nil
	}
	paths := []string{f.Certificate.Path, f.Key.Path}
	if f.ClientCA.Path != "" {
		paths = append(paths, f.ClientCA.Path)
	}
	current, err := NewReloaded(load, warn, paths...)
	if err != nil {
		return nil, err
	}
	c := current.Get().Clone()
	// A resumed session would skip the check of a client against a CA that has changed.
	c.SessionTicketsDisabled = f.ClientCA.Path != ""
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := current.Get().Clone()
		now.SessionTicketsDisabled = c.SessionTicketsDisabled
		return now, nil
	}
	return c, nil
}

// VerifiedClient reports whether the client of a request showed a certificate that its CA has signed.
func VerifiedClient(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// ClientFiles are the TLS files of a client, each "" for none.
type ClientFiles struct {
	CA               File // PEM: trusted instead of the system's roots
	Certificate, Key File // PEM: what this client shows
}

// ClientTLS makes a client's settings: TLS 1.2 or newer. The client's certificate is read again when its files have changed.
func ClientTLS(f ClientFiles) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA.Path != "" {
		pool, err := readPool(f.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if f.Certificate.Path == "" && f.Key.Path == "" {
		return c, nil
	}
	pair, err := NewReloaded(func() (*tls.Certificate, error) { return readPair(f.Certificate, f.Key) }, nil, f.Certificate.Path, f.Key.Path)
	if err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Get(), nil }
	return c, nil
}

// PinnedTLS trusts exactly the certificate of a file, whatever name it is for: how a process asks its own listener.
func PinnedTLS(certificate File) (*tls.Config, error) {
	pem, err := certificate.read()
	if err != nil {
		return nil, err
	}
	own, err := firstCertificate(pem)
	if err != nil {
		return nil, fmt.Errorf("%s (%s): %w", certificate.Setting, certificate.Path, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The name is not checked, since the listener is asked by its address; VerifyConnection checks more.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !s.PeerCertificates[0].Equal(own) {
				return fmt.Errorf("the listener shows another certificate than that of %s", certificate.Setting)
			}
			return nil
		},
	}, nil
}

var errNoCertificate = errors.New("holds no PEM certificate")
