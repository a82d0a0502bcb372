package api

// MaxID is the longest id of a storage, router or job, in bytes.
const MaxID = 80

// CheckID refuses what cannot be part of a subject: an id has 1 to 80 of a-z A-Z 0-9 _ and -. The error is
// BAD_REQUEST; what names the id.
func CheckID(what, id string) error {
	ok := id != "" && len(id) <= MaxID
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	if !ok {
		return Errorf(CodeBadRequest, "%.40q cannot be %s", id, what).WithHint("an id has 1 to %d of a-z A-Z 0-9 _ -", MaxID)
	}
	return nil
}
