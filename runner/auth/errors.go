package auth

import "time"

// Classes of [Error]. They are stable words of the events and the report; each
// one ends a run with exit code 5.
const (
	// ClassMissing: no credential was found where one is needed.
	ClassMissing = "missing"
	// ClassCorrupt: a credential was found but cannot be read as one.
	ClassCorrupt = "corrupt"
	// ClassUnreadable: the operating system refuses to read auth.json.
	ClassUnreadable = "unreadable"
	// ClassUnsupported: a kind of login that this program does not speak.
	ClassUnsupported = "unsupported"
	// ClassForbiddenLogin: the kind of login is not allowed here.
	ClassForbiddenLogin = "forbidden_login"
	// ClassForbiddenWorkspace: the ChatGPT workspace is not allowed here.
	ClassForbiddenWorkspace = "forbidden_workspace"

	// ClassKeyRefused: the service answered 401 to a key or token that cannot
	// be renewed.
	ClassKeyRefused = "key_refused"
	// ClassTokenExpired: an access token that is managed elsewhere ran out.
	ClassTokenExpired = "token_expired"
	// ClassTokenRefused: a freshly renewed token got 401 as well.
	ClassTokenRefused = "token_refused"
	// ClassAccountChanged: auth.json, or the answer to a refresh, belongs to
	// another account than the run began with.
	ClassAccountChanged = "account_changed"

	// ClassNoRefreshToken: a refresh is due but auth.json has no refresh token.
	ClassNoRefreshToken = "no_refresh_token"
	// ClassRefreshExpired, ClassRefreshReused, ClassRefreshRevoked and
	// ClassRefreshRefused are permanent: only a new login helps.
	ClassRefreshExpired = "refresh_expired"
	ClassRefreshReused  = "refresh_reused"
	ClassRefreshRevoked = "refresh_revoked"
	ClassRefreshRefused = "refresh_refused"
	// ClassRefreshUnavailable, ClassRefreshRateLimited and ClassRefreshBadAnswer
	// are transient: the refresh token may still be good.
	ClassRefreshUnavailable = "refresh_unavailable"
	ClassRefreshRateLimited = "refresh_rate_limited"
	ClassRefreshBadAnswer   = "refresh_bad_answer"

	// ClassNotWritable: a new login could not be stored; nothing was spent.
	ClassNotWritable = "not_writable"
	// ClassWrongOwner: storing would change the owner of auth.json; nothing was
	// spent.
	ClassWrongOwner = "wrong_owner"
	// ClassLockTimeout: another process held the lock for too long.
	ClassLockTimeout = "lock_timeout"
	// ClassLockUnavailable: the file system has no locks; nothing was spent.
	ClassLockUnavailable = "lock_unavailable"
	// ClassNotStored: the refresh succeeded and its result could not be stored
	// in auth.json; the message says where it is.
	ClassNotStored = "not_stored"
	// ClassWriteback: the write-back command failed; auth.json is up to date.
	ClassWriteback = "writeback_failed"
)

// Error is why there is no usable credential. Its text never holds a token.
type Error struct {
	Class   string
	Message string
	// Retryable: the same run may succeed later without anybody doing anything.
	Retryable bool

	hint  string
	cause error
	after time.Duration // the other side asked to wait so long
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Hint tells what to do.
func (e *Error) Hint() string { return e.hint }

// Unwrap returns the error of the operating system or the network, if any.
func (e *Error) Unwrap() error { return e.cause }
