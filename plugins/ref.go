package plugins

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/pinion-mr/pinion/api"
)

// Ref is how a user names a module: by name, by name and version, or by digest.
type Ref struct {
	Name    string
	Version string // empty: the newest
	Digest  string // 64 hex digits; then the others are empty
}

// String is what ParseRef reads.
func (r Ref) String() string {
	switch {
	case r.Digest != "":
		return r.Digest
	case r.Version != "":
		return r.Name + "@" + r.Version
	default:
		return r.Name
	}
}

var (
	nameRule    = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	versionRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	digestRule  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ParseRef reads name, name@version, or a digest with or without sha256: before it. A name that looks like
// a digest is one. The error is a BAD_REQUEST [api.Error].
func ParseRef(s string) (Ref, error) {
	if digest := strings.ToLower(strings.TrimPrefix(s, "sha256:")); digestRule.MatchString(digest) {
		return Ref{Digest: digest}, nil
	}
	if strings.HasPrefix(s, "sha256:") {
		return Ref{}, api.Errorf(api.CodeBadRequest, "%s is no digest: sha256: is followed by 64 hex digits", quote(s))
	}
	name, version, versioned := strings.Cut(s, "@")
	if err := CheckName(name); err != nil {
		return Ref{}, err
	}
	if versioned {
		if err := CheckVersion(version); err != nil {
			return Ref{}, err
		}
	}
	return Ref{Name: name, Version: version}, nil
}

// CheckName reports what is wrong with a module's name, as a BAD_REQUEST [api.Error].
func CheckName(name string) error {
	if digestRule.MatchString(name) {
		return api.Errorf(api.CodeBadRequest, "a module cannot be named %s: that is a digest", quote(name))
	}
	if !nameRule.MatchString(name) {
		return api.Errorf(api.CodeBadRequest, "a module cannot be named %s", quote(name)).
			WithHint("a name has 1 to 64 of a-z 0-9 _ - and begins with a letter or a digit")
	}
	return nil
}

// CheckVersion reports what is wrong with a version, as a BAD_REQUEST [api.Error].
func CheckVersion(version string) error {
	if !versionRule.MatchString(version) {
		return api.Errorf(api.CodeBadRequest, "%s cannot be a version", quote(version)).
			WithHint("a version has 1 to 64 of A-Z a-z 0-9 . _ + - and begins with a letter or a digit")
	}
	return nil
}

// NextVersion is the whole number after the largest among versions; "1" if there is none.
func NextVersion(versions []string) string {
	last := uint64(0)
	for _, v := range versions {
		if n, err := strconv.ParseUint(v, 10, 32); err == nil {
			last = max(last, n)
		}
	}
	return strconv.FormatUint(last+1, 10)
}
