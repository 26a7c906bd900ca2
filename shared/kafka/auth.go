package kafka

import (
	"errors"
	"fmt"
	"strings"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// Settings of this package's own among sasl.*: librdkafka does not know them.
const (
	keyTokenFile = "sasl.oauthbearer.token.file" // a JWT, read again for each refresh
	keyAWSRegion = "sasl.aws.region"             // of the cluster, for AWS_MSK_IAM
	keyMechanism = "sasl.mechanism"
	keyProtocol  = "security.protocol"

	mechanismMSK   = "AWS_MSK_IAM"
	mechanismOAuth = "OAUTHBEARER"
)

// auth takes what librdkafka does not know out of a configuration, and returns where its access tokens come from: nil where librdkafka
// needs none of us.
func auth(m kafka.ConfigMap) (tokenSource, error) {
	file, region := take(m, keyTokenFile), take(m, keyAWSRegion)
	if other := take(m, "sasl.mechanisms"); other != "" {
		m[keyMechanism] = other // librdkafka's own name of it
	}
	mechanism := text(m, keyMechanism)
	if mechanism != "" && !strings.HasPrefix(strings.ToLower(text(m, keyProtocol)), "sasl_") {
		return nil, &SettingError{Name: keyProtocol, Err: fmt.Errorf("sasl.mechanism is %s, but %s is %q: set it to sasl_ssl (or sasl_plaintext)",
			mechanism, keyProtocol, text(m, keyProtocol)), Final: true}
	}
	switch {
	case mechanism == mechanismMSK:
		if region == "" {
			return nil, &SettingError{Name: keyAWSRegion, Err: errors.New("AWS_MSK_IAM needs the cluster's region"), Final: true}
		}
		// To the broker it is an access token like any other.
		m[keyMechanism] = mechanismOAuth
		return mskTokens(region), nil
	case region != "":
		return nil, &SettingError{Name: keyAWSRegion, Err: errors.New("has a meaning with sasl.mechanism=AWS_MSK_IAM only"), Final: true}
	case mechanism != mechanismOAuth:
		if file != "" {
			return nil, &SettingError{Name: keyTokenFile, Err: errors.New("has a meaning with sasl.mechanism=OAUTHBEARER only"), Final: true}
		}
		return nil, nil
	}
	oidc := strings.EqualFold(text(m, "sasl.oauthbearer.method"), "oidc")
	unsecured := strings.EqualFold(text(m, "enable.sasl.oauthbearer.unsecure.jwt"), "true")
	switch {
	case file != "" && (oidc || unsecured):
		return nil, &SettingError{Name: keyTokenFile, Err: errors.New("tokens come from elsewhere already (sasl.oauthbearer.method or enable.sasl.oauthbearer.unsecure.jwt); keep one"), Final: true}
	case oidc, unsecured:
		return nil, nil // librdkafka fetches and refreshes its tokens itself
	case file == "":
		return nil, &SettingError{Name: keyMechanism, Err: fmt.Errorf("OAUTHBEARER needs tokens: set sasl.oauthbearer.method=oidc with sasl.oauthbearer.token.endpoint.url, .client.id and .client.secret, or %s", keyTokenFile), Final: true}
	}
	return fileTokens(file), nil
}

func text(m kafka.ConfigMap, key string) string {
	if v, ok := m[key]; ok && v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

func take(m kafka.ConfigMap, key string) string {
	v := text(m, key)
	delete(m, key)
	return v
}

// SettingError is an error that one setting cures.
type SettingError struct {
	Name  string
	Err   error
	Final bool // waiting does not cure it
}

func (e *SettingError) Error() string { return e.Name + ": " + e.Err.Error() }
func (e *SettingError) Unwrap() error { return e.Err }

// Setting is the name of the setting.
func (e *SettingError) Setting() string { return e.Name }

// Cause is the error without the setting's name.
func (e *SettingError) Cause() error { return e.Err }

// Permanent reports that waiting does not cure it.
func (e *SettingError) Permanent() bool { return e.Final }

// securityError says which setting an error event of a connection is about; nil where it is about none. security are the settings that
// secure the connection.
func securityError(e kafka.Error, security kafka.ConfigMap) *SettingError {
	s := e.Error()
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(s, w) {
				return true
			}
		}
		return false
	}
	mechanism := text(security, keyMechanism)
	code := e.Code()
	switch {
	case has("Failed to acquire SASL OAUTHBEARER token"):
		return &SettingError{Name: "sasl.oauthbearer", Err: fmt.Errorf("no access token: %w", e)} // its server may come back
	case has("mechanism handshake failed", "Unsupported SASL mechanism"), code == kafka.ErrUnsupportedSaslMechanism:
		return &SettingError{Name: keyMechanism, Err: fmt.Errorf("the broker does not take %s: %w", mechanism, e), Final: true}
	case has("verify that security.protocol", "incorrect security.protocol", "connecting to a PLAINTEXT"):
		return &SettingError{Name: keyProtocol, Err: fmt.Errorf("the broker's listener speaks something else: %w", e)}
	case has("certificate verify failed", "certificate could not be verified"):
		return &SettingError{Name: "ssl.ca.location", Err: fmt.Errorf("the broker's certificate is not of one of these CAs, or not for this host name: %w", e), Final: true}
	case has("certificate required", "handshake failure", "bad certificate", "unknown ca", "certificate unknown"):
		return &SettingError{Name: "ssl.certificate.location", Err: fmt.Errorf("the broker does not accept this client's certificate: %w", e), Final: true}
	case has("SASL authentication error"), code == kafka.ErrAuthentication, code == kafka.ErrSaslAuthenticationFailed:
		// A broker may also just hang up on a wrong password.
		if mechanism == mechanismOAuth {
			return &SettingError{Name: "sasl.oauthbearer", Err: fmt.Errorf("%w: the broker refuses the access token: %w", ErrUnauthorized, e), Final: true}
		}
		return &SettingError{Name: "sasl.password", Err: fmt.Errorf("%w: the broker refuses user %q with this password (check sasl.username, sasl.password and sasl.mechanism): %w",
			ErrUnauthorized, text(security, "sasl.username"), e), Final: true}
	case code == kafka.ErrSsl:
		return &SettingError{Name: keyProtocol, Err: fmt.Errorf("no TLS with the broker: %w", e)}
	}
	return nil
}
