package config

import (
	"net/url"
	"regexp"
)

// hidden stands in for a secret.
const hidden = "********"

func hideAll(string) string { return hidden }

var dsnPassword = regexp.MustCompile(`(?i)(\b(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)`)

// hideDSN keeps everything of a database address but the password. What it
// does not understand it hides whole.
func hideDSN(dsn string) string {
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" && u.Host != "" {
		if _, set := u.User.Password(); set {
			u.User = url.UserPassword(u.User.Username(), "xxxxx")
		}
		query := u.Query()
		for _, name := range []string{"password", "sslpassword"} {
			if query.Has(name) {
				query.Set(name, "xxxxx")
				u.RawQuery = query.Encode()
			}
		}
		return u.String()
	}
	if !keywordDSN.MatchString(dsn) {
		return hidden
	}
	return dsnPassword.ReplaceAllString(dsn, "${1}xxxxx")
}

var keywordDSN = regexp.MustCompile(`^\s*(?:[a-z_]+\s*=\s*(?:'(?:[^'\\]|\\.)*'|[^\s']*)\s*)+$`)
