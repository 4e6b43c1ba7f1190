//! Why columns cannot be used, and why a line is no row.

/// Why the columns of a table cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnError {
    /// The text of a column has not its form.
    #[error("'{0}' is no column: NAME TYPE [from SOURCE] [not null]")]
    Form(String),
    /// Each table has this column.
    #[error("each table has a column '{0}' already")]
    Reserved(String),
    /// There is no such type.
    #[error("the type '{0}' is not text, integer, real, boolean, timestamp or json")]
    Type(String),
    /// The name of a column or table would have to be quoted, or is too long.
    #[error("the name '{name}' is not made of a-z, 0-9 and _, at most {max}")]
    Name {
        /// The name.
        name: String,
        /// The most bytes.
        max: usize,
    },
    /// A table needs columns.
    #[error("it has no columns")]
    None,
    /// The pattern of lines does not find the column.
    #[error("the pattern has no group '{0}': (?<{0}>...)")]
    NoGroup(String),
    /// A line has fields with numbers.
    #[error("'{0}' is no number of a field, from 1")]
    NoField(String),
}

/// Why a line is no row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is no text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The pattern does not match.
    #[error("the pattern is not found in it")]
    NoMatch,
    /// It has too many fields, or too few.
    #[error("it has {found} fields, not {wanted}")]
    Fields {
        /// Those that it has.
        found: usize,
        /// Those that it is to have.
        wanted: usize,
    },
    /// It is no JSON.
    #[error("it is no JSON: {0}")]
    Json(String),
    /// It is JSON of another kind.
    #[error("it is no JSON object")]
    NoObject,
    /// It has no value for a column that must have one.
    #[error("it has no '{0}'")]
    Missing(String),
    /// A value does not fit its column.
    #[error("'{column}': {why}")]
    Value {
        /// The name of the column.
        column: String,
        /// The reason why the column does not take it.
        #[source]
        why: ValueError,
    },
}

/// Why a value does not fit a column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// No database takes a NUL.
    #[error("it has a NUL")]
    Nul,
    /// It is of another type.
    #[error("'{text}' is no {kind}")]
    Kind {
        /// The beginning of the value.
        text: String,
        /// The type of the column.
        kind: &'static str,
    },
    /// It is no text in JSON.
    #[error("{0}")]
    Text(String),
}
