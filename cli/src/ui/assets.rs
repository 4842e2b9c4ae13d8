//! The files of the pages, which `console/` makes and this program carries.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The files with their types.
const FILES: [(&str, &str, &[u8]); 3] = [
    ("/index.html", "text/html; charset=utf-8", include_bytes!("../../../console/dist/index.html")),
    ("/console.js", "text/javascript; charset=utf-8", include_bytes!("../../../console/dist/console.js")),
    ("/console.css", "text/css; charset=utf-8", include_bytes!("../../../console/dist/console.css")),
];

/// The file of a path. Every other path is a page, which the script in index.html draws.
pub(super) fn file(path: &str) -> Response {
    let is_page = !path.starts_with("/api/") && !path.rsplit('/').next().unwrap_or_default().contains('.');
    // Names of objects have dots.
    let is_page = is_page || path.starts_with("/path/");
    let wanted = if is_page { "/index.html" } else { path };
    match FILES.iter().find(|(name, ..)| *name == wanted) {
        Some((_, kind, bytes)) => ([(header::CONTENT_TYPE, *kind)], *bytes).into_response(),
        None => (StatusCode::NOT_FOUND, "There is no such page.").into_response(),
    }
}
