package service

import (
	"net/url"
	"strings"
)

const mask = "****"

// secretWords mark members of families (consumer.override.sasl.password) and URL parameters whose values are secret. Rather one
// value masked too many than one too few.
var secretWords = []string{"password", "passwd", "secret", "token", "credential", "key.pem", "user.info", "private", "jaas", "access-key", "access_key"}

func looksSecret(name string) bool {
	name = strings.ToLower(name)
	for _, w := range secretWords {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// isSecret reports whether name's value is never printed.
func (c *Config) isSecret(name string) bool {
	if k, ok := c.byName[name]; ok {
		return k.Secret
	}
	k, ok := c.lookup(name)
	return ok && (k.Secret || looksSecret(name))
}

// Masked returns every setting, secrets as "****". Passwords and secret parameters inside URLs are masked too.
func (c *Config) Masked() map[string]string {
	out := make(map[string]string, len(c.values))
	for name, s := range c.values {
		switch {
		case s.raw != "" && c.isSecret(name):
			out[name] = mask
		default:
			out[name] = maskURL(s.raw)
		}
	}
	return out
}

// maskURL masks the password (a user alone may be one too) and the secret parameters of a URL, also of URLs in its parameters; anything else stays as it is. The text is edited in place, so that
// what is not secret keeps its spelling.
func maskURL(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	scheme, rest, _ := strings.Cut(s, "://")
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		if user, _, ok := strings.Cut(authority[:i], ":"); ok {
			authority = user + ":" + mask + authority[i:]
		} else {
			authority = mask + authority[i:] // a token, perhaps
		}
	}
	if path, query, ok := strings.Cut(tail, "?"); ok {
		query, fragment, hasFragment := strings.Cut(query, "#")
		parts := strings.Split(query, "&")
		for i, p := range parts {
			name, value, ok := strings.Cut(p, "=")
			if decoded, err := url.QueryUnescape(name); err == nil && ok && value != "" && looksSecret(decoded) {
				parts[i] = name + "=" + mask
			} else if ok {
				parts[i] = name + "=" + maskNested(value)
			}
		}
		tail = path + "?" + strings.Join(parts, "&")
		if hasFragment {
			tail += "#" + fragment
		}
	}
	return scheme + "://" + authority + tail
}

// maskNested masks a URL that is the value of a parameter, written plainly or percent-encoded.
func maskNested(value string) string {
	if strings.Contains(value, "://") {
		return maskURL(value)
	}
	decoded, err := url.QueryUnescape(value)
	if err != nil {
		return value
	}
	if masked := maskURL(decoded); masked != decoded {
		return strings.ReplaceAll(url.QueryEscape(masked), url.QueryEscape(mask), mask)
	}
	return value
}
