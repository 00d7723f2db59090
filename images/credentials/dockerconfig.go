package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"podd/internal/pod"
)

// dockerEntry is the entry of one registry in a docker configuration. The
// kubelet ignores the tokens; docker writes them, so podd reads them.
type dockerEntry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// auth converts the entry to CRI's; ok is false if it is empty, as docker
// leaves it when a credential helper has the secret.
func (e dockerEntry) auth() (auth pod.RegistryAuth, ok bool, err error) {
	switch {
	case e.IdentityToken != "": // docker prefers it, and containerd ignores it if there is a user name
		return pod.RegistryAuth{IdentityToken: e.IdentityToken}, true, nil
	case e.RegistryToken != "":
		return pod.RegistryAuth{RegistryToken: e.RegistryToken}, true, nil
	case e.Auth != "":
		auth.Username, auth.Password, err = decodeAuth(e.Auth)
		return auth, err == nil, err
	default:
		return pod.RegistryAuth{Username: e.Username, Password: e.Password}, e.Username != "" || e.Password != "", nil
	}
}

// decodeAuth decodes base64("user:password"), padded or not. Its errors never
// quote the input.
func decodeAuth(field string) (user, password string, err error) {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(field), "="))
	if err != nil {
		return "", "", errors.New("auth is not base64")
	}
	user, password, ok := strings.Cut(string(raw), ":")
	if !ok {
		return "", "", errors.New("auth is not user:password in base64")
	}
	return user, password, nil
}

// dockerFile is a docker configuration of either format.
type dockerFile struct {
	index authIndex
	// problems are messages about entries that cannot be used.
	problems []string
}

// parseDockerConfig reads config.json (entries below "auths"), or, if legacy,
// .dockercfg and the Secret of that type (entries at the top level). A bad
// entry does not affect the others.
func parseDockerConfig(data []byte, legacy bool) (*dockerFile, error) {
	var file struct {
		Auths       map[string]json.RawMessage `json:"auths"`
		CredHelpers map[string]string          `json:"credHelpers"`
		CredsStore  string                     `json:"credsStore"`
	}
	into := any(&file)
	if legacy {
		into = &file.Auths
	}
	if err := json.Unmarshal(data, into); err != nil {
		return nil, errors.New("is not JSON in the format that docker login writes") // the error may quote a secret
	}
	d := &dockerFile{}
	for _, key := range sortedKeys(file.Auths) {
		var entry dockerEntry
		if json.Unmarshal(file.Auths[key], &entry) != nil {
			d.problems = append(d.problems, fmt.Sprintf("the credentials for %s are not in the format that docker login writes", key))
			continue
		}
		auth, ok, err := entry.auth()
		if err == nil && ok {
			err = d.index.add(key, auth)
		}
		if err != nil {
			d.problems = append(d.problems, fmt.Sprintf("the credentials for %s are not used: %v", key, err))
		}
	}
	if file.CredsStore != "" || len(file.CredHelpers) > 0 {
		d.problems = append(d.problems, "credHelpers and credsStore are docker's own and not read by node agents: log in without a helper, or use a credential provider plugin (--image-credential-provider-config)")
	}
	return d, nil
}
