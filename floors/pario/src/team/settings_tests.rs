//! Settings as users write them.

use super::*;

#[test]
fn settings_are_read_and_wrong_ones_are_named() {
    let settings =
        TeamSettings::parse("saturation=2MiB, active=8,target=log,write_behind=off,buffer=1MiB").unwrap();
    let expected = TeamSettings {
        saturation: Some(Size(2 << 20)),
        active: Some(8),
        target: Some(TargetKind::Log),
        write_behind: Some(false),
        buffer: Some(Size(1 << 20)),
    };
    assert_eq!(settings, expected);
    for (text, named) in [
        ("active=0", "active=0: write a number of threads"),
        ("active", "active="),
        ("target=tape", "write auto, plain or log"),
        ("write_behind=2", "write on or off"),
        ("saturation=big", "'big' is not a size"),
        ("speed=9", "'speed' is not a setting of teams"),
    ] {
        let error = TeamSettings::parse(text).unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
        assert_eq!(error.code(), TeamCode::BadArgument);
    }
}

#[test]
fn the_longest_directory_of_the_file_counts() {
    let text = "[[directory]]\npath = \"/scratch\"\nactive = 8\nsaturation = \"2MiB\"\n\n\
                [[directory]]\npath = \"/scratch/fast\"\nactive = 2\n\n\
                [[directory]]\npath = \"pario://work\"\nwrite_behind = false\n";
    assert_eq!(of_text(text, "/scratch/a").unwrap().active, Some(8));
    assert_eq!(
        of_text(text, "/scratch/fast/a").unwrap(),
        TeamSettings { active: Some(2), ..Default::default() }
    );
    assert_eq!(of_text(text, "/scratchy/a").unwrap(), TeamSettings::default());
    assert_eq!(of_text(text, "pario://work/a/b").unwrap().write_behind, Some(false));
    for wrong in
        ["[[directory]]\npath=\"/a\"\nspeed=1\n", "[[other]]\n", "[[directory]]\npath=\"/\"\nactive=0\n"]
    {
        assert!(of_text(wrong, "/a").is_err(), "{wrong}");
    }
}

#[test]
fn settings_of_the_program_win() {
    let (program, file) =
        (TeamSettings::parse("active=1").unwrap(), TeamSettings::parse("active=2,buffer=1KiB").unwrap());
    assert_eq!(program.or(&file), TeamSettings::parse("active=1,buffer=1KiB").unwrap());
}

#[test]
fn patience_is_a_time() {
    for (text, milliseconds) in [("30s", 30_000), ("500ms", 500), ("2", 2000), (" 3 s", 3000)] {
        assert_eq!(parse_patience(text).unwrap(), Duration::from_millis(milliseconds));
    }
    for text in ["", "0", "s", "-1s", "1m"] {
        assert!(parse_patience(text).is_err(), "{text}");
    }
}

#[test]
fn the_settings_file_has_a_place() {
    let look_up = |pairs: &'static [(&str, &str)]| {
        settings_path(move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
    };
    assert_eq!(look_up(&[("HOME", "/h")]), Some("/h/.config/pario/team.toml".into()));
    assert_eq!(look_up(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]), Some("/c/pario/team.toml".into()));
    assert_eq!(look_up(&[("PARIO_TEAM_FILE", "/x"), ("HOME", "/h")]), Some("/x".into()));
    assert_eq!(look_up(&[]), None);
}
